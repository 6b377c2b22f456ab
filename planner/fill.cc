// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; these are the inner loops of the search.
#include "planner/fill.h"

#include <algorithm>

namespace vescomm::planner {

std::int64_t UniformFiller::end(std::size_t kind, std::int64_t cursor) {
    const Item &item = kinds_[kind].item;
    cursor = round_up(cursor, item.alignment);
    Cursor at{cursor, cursor - cursor % shards_.shard + shards_.shard};
    if (!go_to_start(at, item, shards_)) return unbounded;
    return at.position + item.elements();
}

RaggedFiller::RaggedFiller(std::span<const Kind> kinds, std::int64_t largest)
    : kinds_(kinds), largest_(largest), known_(kinds.size()) {
    std::int64_t alignment = kinds.empty() ? 1 : kinds.front().item.alignment;
    for (const Kind &kind : kinds) alignment = std::gcd(alignment, kind.item.alignment);
    for (const Kind &kind : kinds) {
        const std::int64_t elements = kind.item.elements();
        paddings_.push_back(round_up(elements, alignment) - elements);
        whole_blocks_.push_back(round_down(largest, kind.grid().block()));
    }
}

//                      cursor
//     shards ...  |-------|======_|=======|==|---- ...
//                        begin  ^ space too small for a block
//
// The first cut in the item is its last boundary within the space left in the shard of the cursor.
std::int64_t RaggedFiller::end(std::size_t kind, std::int64_t cursor) {
    const Grid &grid = kinds_[kind].grid();
    const std::int64_t used = cursor % largest_;
    const std::int64_t space = largest_ - used;
    if (grid.elements() <= space) return cursor + grid.elements();
    if (whole_blocks_[kind] == 0) return unbounded;  // one block is larger than a shard
    return plus(cursor + space, end_after(kind, grid.floor(space)));
}

std::int64_t RaggedFiller::end_after(std::size_t kind, std::int64_t begin) {
    const Grid &grid = kinds_[kind].grid();
    const std::int64_t rest = grid.elements() - begin;
    if (grid.simple()) {
        if (rest <= largest_) return rest;
        const std::int64_t whole = whole_blocks_[kind];
        const std::int64_t shards = divide_up(rest - largest_, whole);
        return shards * largest_ + rest - shards * whole;
    }
    const auto [known, added] = known_[kind].try_emplace(begin, 0);
    if (added) {
        std::int64_t shards = 0;
        std::int64_t cut = begin;
        for (; grid.elements() - cut > largest_; ++shards) cut = grid.floor(cut + largest_);
        known->second = shards * largest_ + grid.elements() - cut;
    }
    return known->second;
}

// A tensor shares at most two shards, its first and its last, with other tensors. Each shard
// between them holds whole blocks only, and the remainder counts as part of the distance.
std::int64_t RaggedFiller::shortest(std::size_t kind) const {
    const Grid &grid = kinds_[kind].grid();
    const std::int64_t whole = whole_blocks_[kind];
    if (!grid.simple() || whole == 0) return grid.elements();
    const std::int64_t rest = std::max<std::int64_t>(grid.elements() - whole - largest_, 0);
    const std::int64_t inside = divide_up(rest, whole);
    return grid.elements() + inside * (largest_ - whole);
}

}  // namespace vescomm::planner
