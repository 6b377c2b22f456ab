// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/free_ranges.h"
#include "comm/memory_aliases.h"
#include "execute/bindings.h"
#include "transport/transport.h"

namespace vescomm::internal {

// Address space of each rank that all ranks of its node map, so that they read arrays in it without
// a copy. The first half is the memory of vescomm_malloc(), whose pages are allocated by
// allocate(). In the second half lie the aliases of other memory (memory_aliases.h). A communicator
// and those that were created from it have one pool.
//
// Threads: safe.
class MemoryPool {
public:
    // `mapping`: a slab of each rank of the node (`locals`), in which the pool begins at `offset`,
    // with mapped_bytes(bytes). `bytes`: of each half, whole pages; 0: allocate() returns private
    // memory of this rank, and there are no aliases.
    MemoryPool(std::shared_ptr<Mapping> mapping, int rank, std::span<const int> locals,
               std::uint64_t offset, std::uint64_t bytes);
    MemoryPool(const MemoryPool &) = delete;
    MemoryPool &operator=(const MemoryPool &) = delete;
    ~MemoryPool();

    // Zeroed memory on whole pages. Throws Error(OUT_OF_MEMORY).
    std::byte *allocate(std::uint64_t bytes);
    // Throws Error(INVALID_ARGUMENT) if `data` did not come from allocate(), or was freed.
    void free(void *data);

    // Address space of a pool whose halves have `bytes`.
    static std::uint64_t mapped_bytes(std::uint64_t bytes);
    // Bytes of both halves of the pool of each rank.
    std::uint64_t bytes() const { return 2 * bytes_; }
    // nullptr: the pool is empty.
    const std::shared_ptr<MemoryAliases> &aliases() const { return aliases_; }
    // The first byte of the pool of a rank of this node. `rank`: in the communicator for which the
    // pool was made. nullptr: it is not mapped.
    const std::byte *base(int rank) const {
        const std::byte *slab = mapping_->base(rank);
        return slab == nullptr ? nullptr : slab + offset_;
    }

private:
    std::byte *allocate_private(std::uint64_t bytes);

    const std::shared_ptr<Mapping> mapping_;
    const std::uint64_t offset_, bytes_;  // of one half
    std::byte *const own_;  // the pool of this rank
    const pid_t process_;  // a child of fork() must not free the pages
    std::mutex mutex_;
    FreeRanges ranges_;
    std::map<void *, std::uint64_t> private_;  // sizes of private memory
    std::shared_ptr<MemoryAliases> aliases_;
};

// The pool of a communicator.
struct CommPool {
    std::uint64_t bytes = 0;  // of each half of a rank's pool, if this communicator makes it
    std::shared_ptr<MemoryPool> memory;
    // By rank: its number in the communicator for which the pool was made.
    std::vector<int> numbers;
    // nullptr: the ranks of this node do not map one another's pools.
    std::shared_ptr<const RegisteredPools> registered;

    // Takes over a pool. `locals`: the ranks of this node.
    void set(std::shared_ptr<MemoryPool> pool, std::vector<int> numbers_by_rank,
             std::span<const int> locals);
};

// Address space, in bytes, that this rank offers for each half of its pool in a communicator of
// `ranks` ranks: `setting` is VESCOMM_MALLOC_BYTES. 0: the system refuses to map that much,
// or limits the sizes of files.
std::uint64_t offered_pool_bytes(const std::string &setting, int ranks);

// The bytes of each half of a pool, if the ranks offer `offers` and the largest node has `locals`
// ranks.
std::uint64_t pool_bytes(const std::vector<std::string> &offers, int locals);

}  // namespace vescomm::internal
