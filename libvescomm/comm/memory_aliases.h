// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/free_ranges.h"
#include "transport/transport.h"

namespace vescomm::internal {

// The range of one slab in the aliases of its rank.
struct AliasRange {
    std::uint64_t offset = 0;  // bytes from the first alias of the rank
    std::uint64_t counter = 0;  // index of a counter of the rank
    std::uint64_t use = 0;  // value of the counter after the rank has freed it. 0: no range

    std::string text() const;
    // Takes the range off the front of `text`. Throws Error(INTERNAL).
    static AliasRange take_from(std::string_view &text);
};

// The second half of the pool of a rank (memory_pool.h). Slabs of memories are mapped there, so
// that calls on arrays recognise their addresses as those of the pool.
//
//     slab of a rank: │ staging buffer │ memory of vescomm_malloc() │ aliases │ counters │
//
// Every rank takes ranges of its own aliases. All ranks of the node map its slab there, each in its
// mapping of the pool. A rank that frees a memory raises its counter. The others may still read and
// pass arrays, so a slab stays mapped until the counters of all ranks have been raised. Then it is
// replaced by pages of zeros: a late reader, whose call has failed, must not fault.
//
// A range is used again only after its owner has seen all counters raised. Every other rank tests
// the counters before it maps the next slab, so it has replaced the earlier slab by then.
//
// Threads: safe.
class MemoryAliases {
public:
    // `mapping`: a slab of each rank of the node (`locals`), in which the aliases begin at `offset`
    // and have `bytes`, whole pages. The counters follow them.
    MemoryAliases(std::shared_ptr<Mapping> mapping, int rank, std::span<const int> locals,
                  std::uint64_t offset, std::uint64_t bytes);
    MemoryAliases(const MemoryAliases &) = delete;
    MemoryAliases &operator=(const MemoryAliases &) = delete;
    ~MemoryAliases();

    static std::uint64_t counter_bytes();

    // These ranks have ended and make no more calls: nothing waits for their counters.
    void mark_gone(std::span<const int> ranks);

private:
    friend class AliasedMapping;

    // The slab of one rank.
    struct Alias {
        int rank = 0;  // in the communicator for which the pool was made
        std::byte *data = nullptr;
        std::uint64_t *counter = nullptr;
        std::uint64_t use = 0;
        bool mapped = false;
    };
    struct Entry {
        std::uint64_t bytes = 0;  // of a slab, whole pages
        AliasRange own;
        std::vector<Alias> aliases;  // empty until the ranges of all ranks are known
        bool withdrawn = false;  // no rank passes arrays in it
    };

    // Takes a range of this rank. Returns false if the memory cannot have aliases: some rank of the
    // node that is not in `ranks` could read them, or there is no space.
    bool take(Entry &entry, std::span<const int> ranks);
    Alias alias_of(int rank, const AliasRange &range, std::uint64_t bytes) const;
    // Maps a slab at its alias.
    bool map(Alias &alias, std::byte *slab, std::uint64_t bytes) noexcept;
    void unmap(Alias &alias, std::uint64_t bytes) noexcept;
    // This rank has freed the memory. `entry`: one element, which is moved.
    void free(std::list<Entry> &entry) noexcept;
    // Unmaps the memories that all ranks have freed. The caller holds the lock.
    void sweep() noexcept;
    void sweep_now() noexcept;
    bool freed_by_all(const Entry &entry) const noexcept;

    const std::shared_ptr<Mapping> mapping_;
    const int rank_;
    const std::vector<int> locals_;
    const std::uint64_t offset_, bytes_;
    const pid_t process_;  // a child of fork() must change nothing
    std::atomic<bool> closed_;  // this process maps no more aliases
    std::mutex mutex_;
    FreeRanges ranges_, counters_;
    std::list<Entry> freed_;  // memories that this rank has freed, and another one has not
    std::set<int> gone_;
};

// A memory that has aliases, while it is created and afterwards. The steps of the creation are
// collective over the ranks of the node. The destructor frees the memory on this rank.
class AliasedMapping final : public Mapping {
public:
    // Takes a range for a slab of `bytes`; nullptr: there is none. `locals`: the ranks of this
    // node. `numbers`: by rank, its number in the communicator for which the pool was made.
    static std::shared_ptr<AliasedMapping> take(std::shared_ptr<MemoryAliases> aliases,
                                                std::span<const int> locals,
                                                const std::vector<int> &numbers, int rank,
                                                std::uint64_t bytes);
    ~AliasedMapping() override;

    const AliasRange &range() const { return entry_.front().own; }
    // Maps the slab of this rank at its alias, if all ranks of the node have ranges; else returns
    // false, and the object is of no more use. `plain`: the first mapping of the memory.
    bool accept(const std::vector<AliasRange> &ranges, std::shared_ptr<Mapping> plain);
    // Maps the slabs of the local peers. Returns true if all slabs are mapped at their aliases.
    bool map_peers() noexcept;
    // The result of map_peers() of all ranks of the node: true: the memory is used at its aliases;
    // false: it is used where it was mapped first.
    void settle(bool all) noexcept;

    std::byte *base(int peer) const noexcept override { return bases_[peer]; }

private:
    AliasedMapping(std::shared_ptr<MemoryAliases> aliases, std::span<const int> locals,
                   const std::vector<int> &numbers, int rank);

    const std::shared_ptr<MemoryAliases> aliases_;
    const std::vector<int> locals_;
    std::vector<int> numbers_;  // of locals_
    const int rank_;
    std::list<MemoryAliases::Entry> entry_;  // one; its aliases are in the order of locals_
    std::shared_ptr<Mapping> plain_;
    std::vector<std::byte *> bases_;
};

}  // namespace vescomm::internal
