// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/buffer.h"

#include "base/error.h"
#include "comm/agree.h"
#include "comm/same_layout.h"

namespace vescomm::internal {

namespace {

// A cache line; more than any element or vector needs.
constexpr std::uint64_t alignment = 64;

}  // namespace

std::shared_ptr<Buffer> Buffer::create(std::shared_ptr<Communicator> comm, const Layout &layout,
                                       Options options) {
    comm->check();
    const std::uint64_t size = size_of(options.type);
    if (size == 0)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "buffer \"" + options.name + "\": there is no " + name_of_type(options.type) +
                        "; use one of VESCOMM_F32 (1) to VESCOMM_C128 (" +
                        std::to_string(last_type) + ")");
    if (layout.ranks() != comm->ranks())
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "buffer \"" + options.name + "\": the layout has " +
                        std::to_string(layout.ranks()) + " shards and the communicator has " +
                        std::to_string(comm->ranks()) + " ranks; plan it for that number");
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(layout.elements()), size, &bytes))
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "buffer \"" + options.name + "\": " + std::to_string(layout.elements()) +
                        " elements of " + std::to_string(size) + " bytes are more than 2^64");
    if (options.offset_bytes % alignment != 0)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "buffer \"" + options.name + "\": offset_bytes is " +
                        std::to_string(options.offset_bytes) + ", and must be a multiple of " +
                        std::to_string(alignment));
    if (options.memory) {
        if (&options.memory->comm() != comm.get())
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, "buffer \"" + options.name +
                                                            "\": its memory belongs to another "
                                                            "communicator");
        if (options.offset_bytes > options.memory->bytes() ||
            bytes > options.memory->bytes() - options.offset_bytes)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "buffer \"" + options.name + "\": " + std::to_string(bytes) + " bytes at " +
                            std::to_string(options.offset_bytes) +
                            " do not fit into its memory of " +
                            std::to_string(options.memory->bytes()) + " bytes");
    }

    const std::string label = "creation of buffer \"" + options.name + "\"";
    const Deadline deadline = comm->deadline();
    require_same_layout(*comm, label, deadline, layout);
    require_same(*comm, label, deadline,
                 {{"its type", name_of_type(options.type)},
                  {"its offset_bytes", std::to_string(options.offset_bytes)},
                  {"its memory", options.memory ? std::to_string(options.memory->id()) : "its own"},
                  {"its kind", std::to_string(options.kind)},
                  {"its sharing", std::to_string(options.sharing)}});
    if (!options.memory) {
        options.memory = Memory::create(comm, bytes, options.kind, options.sharing);
        options.offset_bytes = 0;
    }
    // Either all ranks have the buffer, or none.
    std::shared_ptr<Buffer> buffer;
    Communicator &its = *comm;
    agree(its, label, deadline, [&] {
        buffer.reset(new Buffer(std::move(comm), layout, std::move(options)));
        return std::string();
    });
    return buffer;
}

}  // namespace vescomm::internal
