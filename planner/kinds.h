// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// Items that are alike. Exchanging two of them changes nothing, so a search over orders need not
// tell them apart: one layer of DeepSeek-V3 has 782 tensors of 13 kinds.
struct Kind {
    Item item;  // the first
    std::vector<std::size_t> items;  // indices, ascending

    const Grid &grid() const noexcept { return item.grid; }
    std::int64_t count() const noexcept { return static_cast<std::int64_t>(items.size()); }
};

// In order of their first items. Cost: O(items log items).
std::vector<Kind> kinds_of(const Items &items);

// How items of some kinds, one after another, fill shards of one size.
//
// Positions count every shard in full: what lies at k * shard + f is in shard k, behind f elements.
// For uniform shards that is the place in the buffer; a ragged shard that stays shorter than it
// may be counts as if it were padded.
//
// end() never falls when `cursor` grows. Uniform: see place.cc. Ragged: of two cursors in one
// shard, the one with more room can cut wherever the other can; and a cursor in an earlier shard
// can close that shard and be at the start of the next.
class Filler {
public:
    virtual ~Filler() = default;

    // Elements of a shard.
    virtual std::int64_t shard() const = 0;

    // Where an item of the kind ends at best after what ends at the cursor. unbounded: it can lie
    // nowhere.
    virtual std::int64_t end(std::size_t kind, std::int64_t cursor) = 0;

    // Elements from the end of an item of the kind to where another may start.
    virtual std::int64_t padding(std::size_t kind) const = 0;

    // No item of the kind ends sooner after its start than this.
    virtual std::int64_t shortest(std::size_t kind) const = 0;
};

}  // namespace vescomm::planner
