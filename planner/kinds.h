// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// Interchangeable items: same grid, same alignment. A search over orders works with kinds instead
// of items: one layer of DeepSeek-V3 has 782 tensors of 13 kinds.
struct Kind {
    Item item;  // the first item of the kind
    std::vector<std::size_t> items;  // indices of all, ascending

    const Grid &grid() const noexcept { return item.grid; }
    std::int64_t count() const noexcept { return static_cast<std::int64_t>(items.size()); }
};

// Returns the kinds in order of their first items. Cost: O(items log items).
std::vector<Kind> kinds_of(const Items &items);

// Rules by which consecutive items of some kinds fill shards of one size.
//
// A position counts every shard in full: position k * shard + f is in shard k, after f elements.
// For uniform shards this is the offset in the buffer. A ragged shard that is shorter than `shard`
// counts as if it were padded.
//
// end() is monotone in `cursor`. For uniform shards, place.cc gives the proof. For ragged shards:
// of two cursors in one shard, the earlier one can cut wherever the later one can, and a cursor in
// an earlier shard can close that shard and continue at the start of the next.
class Filler {
public:
    virtual ~Filler() = default;

    // Elements of a shard.
    virtual std::int64_t shard() const = 0;

    // The earliest end of an item of the kind that starts at or after the cursor; `unbounded` when
    // the item fits nowhere.
    virtual std::int64_t end(std::size_t kind, std::int64_t cursor) = 0;

    // Elements between the end of an item of the kind and the next possible start.
    virtual std::int64_t padding(std::size_t kind) const = 0;

    // Lower bound of the distance from the start to the end of an item of the kind.
    virtual std::int64_t shortest(std::size_t kind) const = 0;
};

}  // namespace vescomm::planner
