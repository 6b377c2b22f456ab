// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; the search for the smallest shard calls place() many times.
#include "planner/place.h"

#include <algorithm>

namespace vescomm::planner {
namespace {

// Returns the largest boundary of the item's grid, at most `limit` <= shard, at which a shard may
// end such that all later ends of shards in the tensor, boundary + shard, ..., are on the grid too.
// Returns 0 when there is none. Every number here is a multiple of the tensor's alignment, because
// its start and all shards are.
//
//     tensor       |   |   |   |   |   |   |   |  |      its blocks
//     shards ... ----------|-----------|----------- ...
//                  boundary             + shard
std::int64_t last_boundary(const Item &item, std::int64_t limit, const Shards &shards) {
    const Grid &grid = item.grid;
    const Residue aligned{0, item.alignment};
    const std::int64_t high = std::min(limit, grid.elements() - 1);
    const std::int64_t step = shards.step == 0 ? shards.shard : shards.step;
    if (step % grid.period() == 0) return grid.largest({1, high}, aligned).value_or(0);

    // One end of a shard, when the rest fits into the next shard.
    const std::int64_t rest = grid.elements() - shards.shard;
    if (const auto found = grid.largest({std::max<std::int64_t>(rest, 1), high}, aligned)) {
        return *found;
    }
    if (shards.step != 0 || grid.simple()) return 0;

    // Several ends in a grid that sub-matrices restart. Each end lies one shard after the previous
    // one. Relative to its sub-matrix it lies `ahead` elements further, or `back` elements before.
    // Only one of these can be a whole number of blocks, because a sub-matrix is not. In that
    // direction the ends must stay inside a sub-matrix; otherwise the short block at its end shifts
    // them off the grid.
    const std::int64_t ahead = shards.shard % grid.sub_matrix();
    const std::int64_t back = grid.sub_matrix() - ahead;
    const bool forward = ahead % grid.block() == 0;
    if (!forward && back % grid.block() != 0) return 0;
    // boundary <= shard, so there are at most two possible numbers of ends.
    for (std::int64_t ends = divide_up(grid.elements() - high, shards.shard);; ++ends) {
        const std::int64_t moves = ends - 1;
        const Range range = {std::max<std::int64_t>(grid.elements() - ends * shards.shard, 1),
                             std::min(grid.elements() - moves * shards.shard - 1, high)};
        if (range.high < 1) return 0;
        const std::int64_t way = times(moves, forward ? ahead : back);
        const Range within =
            forward ? Range{0, grid.sub_matrix() - 1 - way} : Range{way, grid.sub_matrix() - 1};
        if (const auto found = grid.largest(range, aligned, within)) return *found;
    }
}

}  // namespace

std::vector<std::int64_t> concatenate(const Items &items, std::span<const std::size_t> order) {
    std::vector<std::int64_t> offsets;
    offsets.reserve(order.size() + 1);
    std::int64_t cursor = 0;
    for (const std::size_t index : order) {
        const Item &item = items.items[index];
        offsets.push_back(round_up(cursor, item.alignment));
        cursor = offsets.back() + item.elements();
    }
    offsets.push_back(cursor);
    return offsets;
}

// The item starts at the cursor if it fits into the rest of the shard. Otherwise it starts at the
// first position that puts the end of the shard on a boundary of its grid, in this shard or else in
// the next. If it does not fit there it fits nowhere, because all shards are alike.
bool go_to_start(Cursor &cursor, const Item &item, const Shards &shards) {
    if (cursor.position >= cursor.shard_end) {
        cursor.shard_end = cursor.position - cursor.position % shards.shard + shards.shard;
    }
    const std::int64_t space = cursor.shard_end - cursor.position;
    if (item.elements() <= space) return true;
    std::int64_t boundary = last_boundary(item, space, shards);
    if (boundary == 0) {
        cursor.position = cursor.shard_end;
        cursor.shard_end += shards.shard;
        if (item.elements() <= shards.shard) return true;
        boundary = last_boundary(item, shards.shard, shards);
        if (boundary == 0) return false;
    }
    cursor.position = cursor.shard_end - boundary;
    return true;
}

// Each item goes to its earliest legal start. The legal starts do not depend on the items before,
// so an earlier end is never worse, and the result is exact for a fixed order.
bool place(const Items &items, std::span<const std::size_t> order, const Shards &shards,
           std::span<std::int64_t> offsets) {
    const std::int64_t end = times(shards.shard, items.ranks);
    Cursor cursor{0, shards.shard};
    std::int64_t left = items.elements;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const Item &item = items.items[order[i]];
        cursor.position = round_up(cursor.position, item.alignment);
        if (left > end - cursor.position) return false;
        if (!go_to_start(cursor, item, shards)) return false;
        if (!offsets.empty()) offsets[i] = cursor.position;
        cursor.position += item.elements();
        if (cursor.position > end) return false;
        left -= item.elements();
    }
    return true;
}

}  // namespace vescomm::planner
