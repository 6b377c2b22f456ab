// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/device_collectives.h"
#include "gpu/device_communicator.h"
#include "gpu/device_placement.h"
#include "layout/layout.h"

namespace vescomm::internal {

// Registered device memory seen through a layout: tensors and shards at addresses that are the same
// until it is freed. It does not keep its communicator alive: calls after the end of that throw.
//
// Threads: one at a time per communicator.
class DeviceBuffer {
public:
    struct Options {
        vescomm_type_t type = VESCOMM_F32;
        // Beginning of memory of DeviceCommunicator::allocate(); nullptr: new memory.
        void *memory = nullptr;
        std::uint64_t offset_bytes = 0;  // in `memory`
        bool strided = false;  // see DevicePlacement
        bool any_cuts = false;  // shards may begin at any byte
        std::string name = "buffer";
    };

    // Returns the places of the shards. Throws INVALID_ARGUMENT for a type that does not exist, and
    // for shards that do not begin at multiples of 16 bytes unless the options permit them.
    static DevicePlacement place(const char *function, const Layout &layout,
                                 const Options &options);
    // Collective, blocking. Every rank gives the same layout and options.
    static std::unique_ptr<DeviceBuffer> create(std::shared_ptr<DeviceCommunicator> comm,
                                                const Layout &layout, Options options);
    // Frees its own memory, collectively, as DeviceCommunicator::free(), which may throw; the
    // buffer then is as before. Memory of the caller is not freed. No effect without a
    // communicator.
    void free();

    // Throws INVALID_ARGUMENT if it has been freed.
    std::shared_ptr<DeviceCommunicator> comm(const char *function) const;
    const Layout &layout() const { return layout_; }
    const DevicePlacement &placement() const { return placement_; }
    vescomm_type_t type() const { return options_.type; }
    const std::string &name() const { return options_.name; }
    char *data() const { return data_; }
    // The buffer, for comparisons of calls.
    DeviceCall::Place place() const { return {DeviceCall::Place::In::buffer, number_, 0}; }
    char *shard(int rank) const { return data_ + placement_.begin(rank); }
    // Throws INVALID_ARGUMENT for a tensor that gaps divide.
    char *tensor(const char *function, std::size_t index) const;

    DeviceProblem problem(const DeviceCommunicator &comm, bool reduces) const;
    // The address of the buffer of each rank, for the methods `peer` and `copy_engine`.
    std::vector<char *> peers(DeviceCommunicator &comm) const;
    // The method of a collective on this buffer alone. Throws as choose_device_method().
    DeviceMethod method(const DeviceCommunicator &comm, bool reduces);
    // Several lines of text: memory, and how a collective will run.
    std::string explain(DeviceCommunicator &comm, bool reduces) const;

private:
    DeviceBuffer(std::shared_ptr<DeviceCommunicator> comm, const Layout &layout, Options options,
                 DevicePlacement placement)
        : comm_(comm),
          layout_(layout),
          options_(std::move(options)),
          placement_(std::move(placement)) {}

    // The beginning of the memory in which the buffer lies: its own, or that of the options.
    void *memory() const { return options_.memory != nullptr ? options_.memory : data_; }

    const std::weak_ptr<DeviceCommunicator> comm_;
    const Layout layout_;
    const Options options_;
    const DevicePlacement placement_;
    std::uint64_t number_ = 0;  // creations on the communicator before this one
    char *data_ = nullptr;
    // By `reduces`; empty until the first call.
    std::array<std::optional<DeviceMethod>, 2> methods_;
};

namespace device {

// Collectives in place on buffers of one communicator, in one group of NCCL. Throw INVALID_ARGUMENT
// for buffers of several communicators and for buffers that overlap.
void all_gather_v(std::span<DeviceBuffer *const> buffers, cuda::Stream stream);
void reduce_scatter_v(std::span<DeviceBuffer *const> buffers, vescomm_op_t op, cuda::Stream stream);

}  // namespace device

}  // namespace vescomm::internal
