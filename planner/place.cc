// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; the search for the smallest shard calls place() many times.
#include "planner/place.h"

#include <algorithm>

namespace vescomm::planner {
namespace {

// The largest boundary of `grid`, at most `limit` <= shard, at which a shard may end when the
// tensor also goes through later ends of shards: all of boundary, boundary + shard, ... inside the
// tensor must be on the grid. 0 when there is none. Every number here is a multiple of the
// alignment, since starts and shards are.
//
//     tensor       |   |   |   |   |   |   |   |  |      its blocks
//     shards ... ----------|-----------|----------- ...
//                  boundary             + shard
std::int64_t last_boundary(const Grid &grid, std::int64_t limit, const Shards &shards) {
    const Residue aligned{0, shards.alignment};
    const std::int64_t high = std::min(limit, grid.elements() - 1);
    const std::int64_t step = shards.step == 0 ? shards.shard : shards.step;
    if (step % grid.period() == 0) return grid.largest({1, high}, aligned).value_or(0);

    // One end of a shard, when what is left fits into the next one.
    const std::int64_t rest = grid.elements() - shards.shard;
    if (const auto found = grid.largest({std::max<std::int64_t>(rest, 1), high}, aligned)) {
        return *found;
    }
    if (shards.step != 0 || grid.simple()) return 0;

    // Several ends where sub-matrices restart the grid: each lies a shard after the one before it,
    // which within the sub-matrices means `ahead` further, or `back` before. Of these two only one
    // can be a whole number of blocks, because a sub-matrix is none; and going that way, the ends
    // must stay inside a sub-matrix, or the short block at its end would shift them off the grid.
    const std::int64_t ahead = shards.shard % grid.sub_matrix();
    const std::int64_t back = grid.sub_matrix() - ahead;
    const bool forward = ahead % grid.block() == 0;
    if (!forward && back % grid.block() != 0) return 0;
    // boundary <= shard, so the number of ends takes at most two values.
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

std::vector<std::int64_t> concatenate(const Items &items, std::span<const std::size_t> order,
                                      std::int64_t alignment) {
    std::vector<std::int64_t> offsets;
    offsets.reserve(order.size() + 1);
    std::int64_t cursor = 0;
    for (const std::size_t index : order) {
        offsets.push_back(round_up(cursor, alignment));
        cursor = offsets.back() + items.items[index].elements();
    }
    offsets.push_back(cursor);
    return offsets;
}

// Each item goes to its earliest legal start. Which starts are legal does not depend on what lies
// before, so an earlier end is never worse, and taking the earliest is exact for a fixed order.
//
// The earliest start is at the cursor if the item ends before the shard does; otherwise as early as
// puts the end of the shard on a boundary of its grid; otherwise the same from the next shard on,
// and if it does not fit there either it fits nowhere, because all shards are alike.
bool place(const Items &items, std::span<const std::size_t> order, const Shards &shards,
           std::span<std::int64_t> offsets) {
    const std::int64_t end = times(shards.shard, items.ranks);
    std::int64_t cursor = 0;
    std::int64_t shard_end = shards.shard;  // of the shard that the cursor is in
    std::int64_t left = items.elements;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const Grid &grid = items.items[order[i]].grid;
        std::int64_t start = round_up(cursor, shards.alignment);
        if (left > end - start) return false;
        if (start >= shard_end) shard_end = start - start % shards.shard + shards.shard;
        if (grid.elements() > shard_end - start) {
            std::int64_t boundary = last_boundary(grid, shard_end - start, shards);
            if (boundary == 0) {
                start = shard_end;
                shard_end += shards.shard;
                if (grid.elements() > shards.shard) {
                    boundary = last_boundary(grid, shards.shard, shards);
                    if (boundary == 0) return false;
                }
            }
            if (boundary != 0) start = shard_end - boundary;
        }
        cursor = start + grid.elements();
        if (cursor > end) return false;
        left -= grid.elements();
        if (!offsets.empty()) offsets[i] = start;
    }
    return true;
}

}  // namespace vescomm::planner
