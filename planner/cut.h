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

// Items at fixed places in a buffer, and where that buffer may be cut: at the block boundaries of
// the items, and anywhere between them.
class Line {
public:
    // `offsets` as concatenate() returns them; all three are borrowed.
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

// A place on a line that remembers which item it is in, so that a walk along the line costs
// O(items) in all. `position` in [0, elements()].
class Walker {
public:
    explicit Walker(const Line &line) noexcept : line_(line) {}

    // Goes to a position, from the last one item by item.
    void go(std::int64_t position) noexcept;

    // The last legal cut at or before the position; the first at or after it.
    std::int64_t floor() const noexcept;
    std::int64_t ceil() const noexcept;

    // The same among cuts that are multiples of `alignment`, if one lies in [low, position], or in
    // [position, high].
    std::optional<std::int64_t> floor(std::int64_t low, std::int64_t alignment) const noexcept;
    std::optional<std::int64_t> ceil(std::int64_t high, std::int64_t alignment) const noexcept;

private:
    bool inside() const noexcept;

    const Line &line_;
    std::int64_t position_ = 0;
    std::size_t next_ = 0;  // the first item that ends after the position
};

// Whether the line can be cut into shards of at most `largest` elements: cutting as late as
// possible needs the fewest. Cost: O(items + ranks).
bool possible(const Line &line, int ranks, std::int64_t largest);

// The same for shards of at most limits[rank] elements each.
bool possible(const Line &line, std::span<const std::int64_t> limits);

// Elements of each shard.
std::vector<std::int64_t> shards_of(std::span<const std::int64_t> cuts);

// The smallest multiple of `unit`, at least `bound` and less than `best`, for which this is
// possible; nothing when there is none. Exact. Cost: O((items + ranks) log elements).
std::optional<std::int64_t> smallest_largest_shard(const Line &line, int ranks, std::int64_t unit,
                                                   std::int64_t bound, std::int64_t best);

// What cuts must be like, and what they should be like. Everything is borrowed.
struct Wishes {
    std::span<const std::int64_t> limits;  // of each shard; possible(line, limits) must hold
    std::span<const std::int64_t> earliest;  // of each cut, as earliest_cuts() returns them
    std::span<const std::int64_t> ideals;  // where the cuts, ranks + 1, would be best
    std::int64_t alignment = 1;
};

// For each of ranks + 1 cuts the first place from which the later shards still reach the end.
// Cost: O(items + ranks).
std::vector<std::int64_t> earliest_cuts(const Line &line, std::span<const std::int64_t> limits);

// ranks + 1 cuts within the limits: each at a multiple of the alignment where it can be, otherwise
// of half of it and so on; and among those next to its ideal. Cost: O(items + ranks).
std::vector<std::int64_t> cuts_near(const Line &line, const Wishes &wishes);

// The same for shards of at most `largest` elements, which must be possible, and cuts next to where
// equal shards would have them.
std::vector<std::int64_t> even_cuts(const Line &line, int ranks, std::int64_t largest,
                                    std::int64_t alignment);

}  // namespace vescomm::planner
