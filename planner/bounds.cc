// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/bounds.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/granule.h"

namespace vescomm::planner {
namespace {

// Blocks of one size, in the sequence of all blocks, largest first.
struct BlockClass {
    std::int64_t size = 0;
    std::int64_t blocks = 0;  // of this size
    std::int64_t blocks_end = 0;  // number of blocks of this size or larger
    std::int64_t elements_end = 0;  // elements of blocks of this size or larger
};

std::vector<BlockClass> block_classes(const Items &items) {
    std::vector<BlockClass> sizes;
    for (const Item &item : items.items) {
        const std::int64_t matrix = item.grid.sub_matrix();
        const std::int64_t matrices = item.elements() / matrix;
        sizes.push_back({item.grid.block(), matrix / item.grid.block() * matrices});
        const std::int64_t short_block = matrix % item.grid.block();
        if (short_block > 0) sizes.push_back({short_block, matrices});
    }
    std::ranges::sort(sizes, std::ranges::greater(), &BlockClass::size);
    std::vector<BlockClass> classes;
    for (const BlockClass &same : sizes) {
        if (classes.empty() || classes.back().size != same.size) classes.push_back({same.size});
        classes.back().blocks += same.blocks;
    }
    std::int64_t blocks = 0;
    std::int64_t elements = 0;
    for (BlockClass &here : classes) {
        here.blocks_end = blocks += here.blocks;
        here.elements_end = elements += here.blocks * here.size;
    }
    return classes;
}

// Elements of the `count` largest blocks.
std::int64_t elements_of_largest(const std::vector<BlockClass> &classes, std::int64_t count) {
    if (count == 0) return 0;
    const auto last = std::ranges::lower_bound(classes, count, {}, &BlockClass::blocks_end);
    return last->elements_end - (last->blocks_end - count) * last->size;
}

// Shards smaller than `threshold` must be multiples of `period`.
struct Condition {
    std::int64_t threshold = 0;
    std::int64_t period = 1;
};

void add_conditions(std::vector<Condition> &conditions, const Grid &grid, std::int64_t alignment) {
    const std::int64_t elements = grid.elements();
    if (grid.simple()) {
        // A start and a boundary are both aligned, so a piece between them is a multiple of `unit`,
        // and one boundary suffices when elements <= S + unit * floor(S / unit). For the smallest
        // such S the quotient is `pieces`.
        const std::int64_t unit = least_common_multiple(alignment, grid.block());
        const std::int64_t pieces = divide_up(elements / unit, 2);
        conditions.push_back({std::max(pieces * unit, elements - pieces * unit), grid.period()});
        return;
    }
    // In a grid that sub-matrices restart, two boundaries can lie on the grid when S is a whole
    // number of sub-matrices, or differs from it by whole blocks. Either way S is a multiple of the
    // greatest common divisor of block and sub-matrix.
    conditions.push_back({divide_up(elements, 2), std::gcd(grid.block(), grid.sub_matrix())});
    // If S differs, every boundary lies at least a block further along the sub-matrix than the one
    // before, and leaves it after this many boundaries.
    const std::int64_t boundaries = (grid.sub_matrix() - 1) / grid.block() + 1;
    conditions.push_back({divide_up(elements, boundaries + 1), grid.sub_matrix()});
}

}  // namespace

std::int64_t mean_bound(const Items &items) {
    return divide_up(items.occupied, items.ranks);
}

std::int64_t block_bound(const Items &items) {
    const std::vector<BlockClass> classes = block_classes(items);
    std::int64_t bound = 0;
    std::int64_t blocks_begin = 0;
    for (const BlockClass &here : classes) {
        // j of the first and the last block of this size whose number in the sequence is
        // j * ranks + 1.
        const std::int64_t first = divide_up(blocks_begin, items.ranks);
        const std::int64_t last = (here.blocks_end - 1) / items.ranks;
        for (const std::int64_t j : {first, last}) {
            const std::int64_t place = times(j, items.ranks) + 1;
            if (j > last || place > here.blocks_end) continue;
            bound = std::max(bound, elements_of_largest(classes, place) -
                                        elements_of_largest(classes, place - j - 1));
        }
        blocks_begin = here.blocks_end;
    }
    return bound;
}

std::int64_t granule_bound(const Items &items) {
    std::vector<Granule> tensors;
    for (const Item &item : items.items) {
        tensors.push_back({granule_of(item.grid), item.elements()});
    }
    std::int64_t bound = 0;
    for (const auto &[size, elements] : common_granules(std::move(tensors))) {
        bound = std::max(bound, divide_up(elements / size, items.ranks) * size);
    }
    return bound;
}

std::int64_t lower_bound(const Items &items) {
    return std::max({mean_bound(items), block_bound(items), granule_bound(items)});
}

std::int64_t uniform_bound(const Items &items, std::int64_t alignment, std::int64_t at_least) {
    std::vector<Condition> conditions;
    for (const Item &item : items.items) add_conditions(conditions, item.grid, alignment);
    std::ranges::sort(conditions, std::ranges::greater(), &Condition::threshold);

    // A smaller shard must meet more conditions, so sweep from the largest shards down. Between
    // two thresholds the shard is a multiple of all periods met so far.
    std::int64_t bound = unbounded;
    std::int64_t above = unbounded;  // the shards of the current range are smaller than this
    std::int64_t step = alignment;
    for (std::size_t i = 0; i <= conditions.size(); ++i) {
        const std::int64_t low =
            std::max(at_least, i < conditions.size() ? conditions[i].threshold : 0);
        if (step != unbounded && low < above) {
            const std::int64_t shard = round_up(low, step);
            if (shard < above) bound = shard;
        }
        if (i == conditions.size() || low == at_least) break;
        above = conditions[i].threshold;
        step = least_common_multiple(step, conditions[i].period);
    }
    return bound;
}

}  // namespace vescomm::planner
