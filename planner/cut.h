// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// Items at fixed places in a buffer. The buffer may be cut at the block boundaries of the items and
// anywhere between items.
class Line {
public:
    // `offsets` is the result of concatenate(). All three arguments are borrowed.
    Line(const Items &items, std::span<const std::size_t> order,
         std::span<const std::int64_t> offsets)
        : items_(items), order_(order), offsets_(offsets) {}

    std::int64_t elements() const noexcept { return offsets_.back(); }
    std::size_t count() const noexcept { return order_.size(); }
    const Grid &grid(std::size_t i) const noexcept { return items_.items[order_[i]].grid; }
    std::int64_t begin(std::size_t i) const noexcept { return offsets_[i]; }
    std::int64_t end(std::size_t i) const noexcept { return offsets_[i] + grid(i).elements(); }

private:
    const Items &items_;
    std::span<const std::size_t> order_;
    std::span<const std::int64_t> offsets_;
};

// A position in [0, elements()] on a line. It remembers the item it is in, so a walk along the
// line costs O(items) in total.
class Walker {
public:
    explicit Walker(const Line &line) noexcept : line_(line) {}

    // Moves to a position, item by item from the previous one.
    void go(std::int64_t position) noexcept;

    // floor() returns the last legal cut at or before the position, ceil() the first at or after.
    std::int64_t floor() const noexcept;
    std::int64_t ceil() const noexcept;

    // Variants that consider only cuts at multiples of `alignment`, in [low, position] and in
    // [position, high]. Nothing when there is no such cut.
    std::optional<std::int64_t> floor(std::int64_t low, std::int64_t alignment) const noexcept;
    std::optional<std::int64_t> ceil(std::int64_t high, std::int64_t alignment) const noexcept;

private:
    bool inside() const noexcept;

    const Line &line_;
    std::int64_t position_ = 0;
    std::size_t next_ = 0;  // the first item that ends after the position
};

// Returns true when the line can be cut into `ranks` shards of at most `largest` elements. Cuts as
// late as possible, which needs the fewest shards. Cost: O(items + ranks).
bool possible(const Line &line, int ranks, std::int64_t largest);

// Returns true when the line can be cut into shards of at most limits[rank] elements.
bool possible(const Line &line, std::span<const std::int64_t> limits);

// Returns the elements of each shard.
std::vector<std::int64_t> shards_of(std::span<const std::int64_t> cuts);

// Returns the smallest multiple of `unit` in [bound, best) for which possible() holds; nothing when
// there is none. Exact. Cost: O((items + ranks) log elements).
std::optional<std::int64_t> smallest_largest_shard(const Line &line, int ranks, std::int64_t unit,
                                                   std::int64_t bound, std::int64_t best);

// Constraints and preferences for cuts. The spans are borrowed.
struct CutTargets {
    std::span<const std::int64_t> limits;  // largest shard of each rank; possible() must hold
    std::span<const std::int64_t> earliest;  // result of earliest_cuts()
    std::span<const std::int64_t> ideals;  // preferred position of each of ranks + 1 cuts
    std::int64_t alignment = 1;  // preferred multiple of cuts, in elements
};

// Returns, for each of ranks + 1 cuts, the first position from which the later shards still reach
// the end. Cost: O(items + ranks).
std::vector<std::int64_t> earliest_cuts(const Line &line, std::span<const std::int64_t> limits);

// Returns ranks + 1 cuts within the limits. Each cut is a multiple of the alignment if possible,
// otherwise of half of it, and so on. Among the possible positions the one nearest to the ideal is
// taken. Cost: O(items + ranks).
std::vector<std::int64_t> cuts_near(const Line &line, const CutTargets &targets);

// cuts_near() for shards of at most `largest` elements, with the cuts of equal shards as ideals.
// possible(line, ranks, largest) must hold.
std::vector<std::int64_t> even_cuts(const Line &line, int ranks, std::int64_t largest,
                                    std::int64_t alignment);

}  // namespace vescomm::planner
