// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "comm/communicator.h"

namespace vescomm {

// Bytes, mapped on this node and registered with the transports, at one address for life.
//
// A slab that a node shares has turns: a gather fills it, everyone reads it and releases it, the
// next gather may begin. Releases are counted on a channel of the memory's own: a rank that has
// released n times has let go of the first n gathers.
class Memory {
public:
    // Collective, blocking.
    static std::shared_ptr<Memory> create(std::shared_ptr<Communicator> comm, std::uint64_t bytes,
                                          vescomm_memory_kind_t kind, vescomm_sharing_t sharing,
                                          bool reserve = true);
    ~Memory();

    Communicator &comm() const { return *comm_; }
    const std::shared_ptr<Mapping> &mapping() const { return mapping_; }
    std::byte *data() const { return mapping_->base(comm_->rank()); }
    std::uint64_t bytes() const { return bytes_; }
    vescomm_sharing_t sharing() const { return sharing_; }
    MemoryId id() const { return id_; }
    std::uint32_t release_channel() const { return channel_.number; }

    // This rank no longer reads what was gathered last.
    void release();
    // Begins a gather: returns how often everyone must have released before bytes may be written.
    std::uint64_t begin_gather();
    // Waits until everyone has released all gathers so far.
    void acquire(const std::string &what);

    // Memory of each rank's own for the partial sums of the requests on this one, one at a time.
    // Collective; the same call on every rank.
    std::shared_ptr<Memory> shared_partial(std::uint64_t bytes);

private:
    Memory(std::shared_ptr<Communicator> comm, std::uint64_t bytes, vescomm_sharing_t sharing,
           Channel channel);

    std::shared_ptr<Communicator> comm_;
    std::uint64_t bytes_;
    vescomm_sharing_t sharing_;
    MemoryId id_;
    Channel channel_;
    std::shared_ptr<Mapping> mapping_;
    // Counts of gathers and releases begin here: above all flags that an earlier user of the
    // channel has left.
    std::uint64_t none_;
    std::uint64_t gathers_ = none_;
    std::uint64_t released_ = none_;
    std::shared_ptr<Memory> partial_;
};

}  // namespace vescomm
