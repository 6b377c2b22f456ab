// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/types.h"
#include "comm/memory.h"
#include "layout/layout.h"

namespace vescomm::internal {

// Memory seen through a layout.
class Buffer {
public:
    struct Options {
        vescomm_type_t type = VESCOMM_F32;
        std::shared_ptr<Memory> memory = {};  // nullptr: new, of the kind and sharing below
        std::uint64_t offset_bytes = 0;
        vescomm_memory_kind_t kind = VESCOMM_HOST;
        vescomm_sharing_t sharing = VESCOMM_PER_RANK;
        std::string name = {};
    };

    // Collective, blocking. Every rank gives the same layout and options.
    static std::shared_ptr<Buffer> create(std::shared_ptr<Communicator> comm, const Layout &layout,
                                          Options options);

    Communicator &comm() const { return *comm_; }
    const std::shared_ptr<Communicator> &shared_comm() const { return comm_; }
    const Layout &layout() const { return layout_; }
    Memory &memory() const { return *options_.memory; }
    vescomm_type_t type() const { return options_.type; }
    std::uint64_t offset_bytes() const { return options_.offset_bytes; }
    bool per_node() const { return memory().sharing() == VESCOMM_PER_NODE; }
    const std::string &name() const { return options_.name; }

    // The element at `offset` of this rank's (or node's) slab.
    std::byte *at(std::int64_t offset) const {
        return memory().data() + offset_bytes() +
               static_cast<std::size_t>(offset) * size_of(type());
    }

private:
    Buffer(std::shared_ptr<Communicator> comm, const Layout &layout, Options options)
        : comm_(std::move(comm)), layout_(layout), options_(std::move(options)) {}

    std::shared_ptr<Communicator> comm_;
    Layout layout_;
    Options options_;
};

}  // namespace vescomm::internal
