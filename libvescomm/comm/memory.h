// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace vescomm::internal {

class Memory;
class Request;

// Memory for the partial sums of the requests on a memory, of which one runs at a time.
struct PartialSums {
    std::shared_ptr<Memory> memory;  // one slab for each rank
    const Request *last_user = nullptr;  // the request that was started last, if it still exists
};

// Bytes, mapped on this node and registered with the transports, at one address until freed.
//
// A slab that a node shares is reused: a gather fills it, every rank reads it and releases it, then
// the next gather may begin. Releases are counted on a channel of this memory: a rank whose count
// is n has released the first n gathers.
class Memory {
public:
    struct Extras {
        bool reserve = true;  // allocate the pages now
        // Bytes of address space after those of each slab, which are mapped on the node only, and
        // not reserved.
        std::uint64_t spare = 0;
        // Calls on arrays recognise slabs of VESCOMM_PER_RANK, if possible (memory_aliases.h).
        bool aliases = false;
        // Memory for partial sums that requests will need, in bytes of each rank.
        std::uint64_t partial = 0;
    };
    // Collective, blocking.
    static std::shared_ptr<Memory> create(std::shared_ptr<Communicator> comm, std::uint64_t bytes,
                                          vescomm_memory_kind_t kind, vescomm_sharing_t sharing,
                                          const Extras &extras);
    static std::shared_ptr<Memory> create(std::shared_ptr<Communicator> comm, std::uint64_t bytes,
                                          vescomm_memory_kind_t kind, vescomm_sharing_t sharing) {
        return create(std::move(comm), bytes, kind, sharing, Extras());
    }
    ~Memory();

    Communicator &comm() const { return *comm_; }
    const std::shared_ptr<Mapping> &mapping() const { return mapping_; }
    std::byte *data() const { return mapping_->base(comm_->rank()); }
    std::uint64_t bytes() const { return bytes_; }
    vescomm_sharing_t sharing() const { return sharing_; }
    MemoryId id() const { return id_; }
    std::uint32_t release_channel() const { return channel_.number; }

    // This rank no longer reads the result of the latest gather.
    void release();
    // Begins a gather. Returns the release count that every rank of the node must have reached
    // before bytes may be written; 0: none.
    std::uint64_t begin_gather();
    // Waits until every rank of the node has released all gathers so far.
    void acquire(const std::string &what);

    // The partial sums of the requests on this memory. Collective: every rank gives the same size.
    std::shared_ptr<PartialSums> shared_partial(std::uint64_t bytes);
    // Bytes of this rank for these partial sums.
    std::uint64_t partial_bytes() const;

private:
    Memory(std::shared_ptr<Communicator> comm, std::uint64_t bytes, vescomm_sharing_t sharing,
           Channel channel);

    std::shared_ptr<Communicator> comm_;
    std::uint64_t bytes_;
    vescomm_sharing_t sharing_;
    MemoryId id_;
    Channel channel_;
    std::shared_ptr<Mapping> mapping_;
    // Counts of gathers and releases begin here: above all flags that earlier users of the channel
    // have left.
    std::uint64_t count_base_;
    std::uint64_t gathers_ = count_base_;
    std::uint64_t released_ = count_base_;
    std::shared_ptr<PartialSums> partial_;
    // Partial sums that were too small for a later request. Requests keep them.
    std::vector<std::weak_ptr<PartialSums>> earlier_partial_;
};

}  // namespace vescomm::internal
