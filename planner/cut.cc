// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; the search walks the line a few dozen times.
#include "planner/cut.h"

#include <algorithm>

namespace vescomm::planner {
namespace {

// Returns the legal cut in [low, high] at a multiple of `alignment` that is nearest to `ideal`, if
// there is one. The walker is at `ideal`.
std::optional<std::int64_t> nearest(const Walker &walker, std::int64_t ideal, std::int64_t low,
                                    std::int64_t high, std::int64_t alignment) {
    const auto below = walker.floor(low, alignment);
    if (below == ideal) return below;
    const auto above = walker.ceil(high, alignment);
    if (!below || !above) return below ? below : above;
    return ideal - *below <= *above - ideal ? below : above;
}

}  // namespace

void Walker::go(std::int64_t position) noexcept {
    position_ = position;
    while (next_ < line_.count() && line_.end(next_) <= position) ++next_;
    while (next_ > 0 && line_.end(next_ - 1) > position) --next_;
}

bool Walker::inside() const noexcept {
    return next_ < line_.count() && line_.begin(next_) < position_;
}

std::int64_t Walker::floor() const noexcept {
    if (!inside()) return position_;
    return line_.begin(next_) + line_.grid(next_).floor(position_ - line_.begin(next_));
}

std::int64_t Walker::ceil() const noexcept {
    if (!inside()) return position_;
    return line_.begin(next_) + line_.grid(next_).ceil(position_ - line_.begin(next_));
}

std::optional<std::int64_t> Walker::floor(std::int64_t low, std::int64_t alignment) const noexcept {
    std::int64_t high = position_;
    // Go backwards through the items and the free space before each item.
    for (std::size_t i = next_ + 1; i-- > 0 && high >= low;) {
        if (i < line_.count() && line_.begin(i) <= high) {
            const std::int64_t begin = line_.begin(i);
            const auto found =
                line_.grid(i).largest({std::max<std::int64_t>(low - begin, 0), high - begin},
                                      {-(begin % alignment), alignment});
            if (found) return begin + *found;
            high = begin - 1;
        }
        const std::int64_t free = i > 0 ? line_.end(i - 1) : 0;
        const std::int64_t aligned = high < 0 ? -1 : round_down(high, alignment);
        if (aligned >= std::max(free, low)) return aligned;
        high = std::min(high, free - 1);
    }
    return std::nullopt;
}

std::optional<std::int64_t> Walker::ceil(std::int64_t high, std::int64_t alignment) const noexcept {
    std::int64_t low = position_;
    // Go forwards through the free space before each item and the items.
    for (std::size_t i = next_; low <= high; ++i) {
        const bool last = i == line_.count();
        const std::int64_t free_end = last ? line_.elements() : line_.begin(i);
        const std::int64_t aligned = round_up(low, alignment);
        if (aligned <= std::min(free_end, high)) return aligned;
        if (last) break;
        const std::int64_t begin = line_.begin(i);
        low = std::max(low, begin);
        const auto found =
            line_.grid(i).smallest({low - begin, std::min(high, line_.end(i) - 1) - begin},
                                   {-(begin % alignment), alignment});
        if (found) return begin + *found;
        low = line_.end(i);
    }
    return std::nullopt;
}

bool possible(const Line &line, int ranks, std::int64_t largest) {
    Walker walker(line);
    std::int64_t cut = 0;
    for (int left = ranks; cut < line.elements(); --left) {
        if (line.elements() - cut > times(left, largest)) return false;
        walker.go(std::min(plus(cut, largest), line.elements()));
        const std::int64_t next = walker.floor();
        if (next == cut) return false;  // one block is larger than a shard
        cut = next;
    }
    return true;
}

bool possible(const Line &line, std::span<const std::int64_t> limits) {
    Walker walker(line);
    std::int64_t cut = 0;
    for (const std::int64_t limit : limits) {
        if (cut == line.elements()) break;
        walker.go(std::min(plus(cut, limit), line.elements()));
        cut = walker.floor();
    }
    return cut == line.elements();
}

std::vector<std::int64_t> shards_of(std::span<const std::int64_t> cuts) {
    std::vector<std::int64_t> shards;
    for (std::size_t k = 1; k < cuts.size(); ++k) shards.push_back(cuts[k] - cuts[k - 1]);
    return shards;
}

std::optional<std::int64_t> smallest_largest_shard(const Line &line, int ranks, std::int64_t unit,
                                                   std::int64_t bound, std::int64_t best) {
    std::int64_t block = 0;
    for (std::size_t i = 0; i < line.count(); ++i) {
        block = std::max(block, line.grid(i).block());
    }
    // Every shard except the last comes within a block of its limit, so `plenty` always suffices.
    const std::int64_t plenty = plus(divide_up(line.elements(), ranks), block);
    std::int64_t low = divide_up(bound, unit);
    std::int64_t high = std::min(divide_up(plenty, unit), divide_up(best, unit) - 1);
    if (low > high || !possible(line, ranks, high * unit)) return std::nullopt;
    if (possible(line, ranks, low * unit)) return low * unit;
    ++low;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (possible(line, ranks, middle * unit)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low * unit;
}

std::vector<std::int64_t> earliest_cuts(const Line &line, std::span<const std::int64_t> limits) {
    std::vector<std::int64_t> cuts(limits.size() + 1, 0);
    cuts.back() = line.elements();
    Walker walker(line);
    for (std::size_t k = limits.size(); k-- > 1;) {
        walker.go(std::max<std::int64_t>(cuts[k + 1] - limits[k], 0));
        cuts[k] = walker.ceil();
    }
    return cuts;
}

// Cut k lies between the earliest position from which the later shards still reach the end and the
// last position that shard k - 1 reaches. Every legal cut in this range leaves the rest possible.
std::vector<std::int64_t> cuts_near(const Line &line, const CutTargets &targets) {
    const std::size_t ranks = targets.limits.size();
    std::vector<std::int64_t> cuts(ranks + 1, 0);
    cuts.back() = line.elements();
    // Limits the search for an aligned cut to one shard: a longer one visits many items for little.
    const std::int64_t reach =
        std::max(line.elements() / static_cast<std::int64_t>(ranks), targets.alignment);
    Walker walker(line);
    for (std::size_t k = 1; k < ranks; ++k) {
        const std::int64_t low = std::max(targets.earliest[k], cuts[k - 1]);
        const std::int64_t limit = std::min(plus(cuts[k - 1], targets.limits[k - 1]), cuts.back());
        std::int64_t ideal = std::clamp(targets.ideals[k], low, limit);
        walker.go(ideal);
        const std::int64_t below = walker.floor();
        std::int64_t above = below == ideal ? below : walker.ceil();
        if (above > limit) ideal = above = below;
        std::int64_t cut = ideal - below <= above - ideal ? below : above;
        if (below % targets.alignment != 0 || above % targets.alignment != 0) {
            walker.go(limit);
            const std::int64_t high = std::min(walker.floor(), plus(ideal, reach));
            walker.go(ideal);
            std::optional<std::int64_t> aligned;
            for (std::int64_t unit = targets.alignment; !aligned && unit > 1; unit /= 2) {
                aligned = nearest(walker, ideal, std::max(low, ideal - reach), high, unit);
                if (unit % 2 != 0) break;
            }
            cut = aligned.value_or(cut);
        }
        cuts[k] = cut;
    }
    return cuts;
}

std::vector<std::int64_t> even_cuts(const Line &line, int ranks, std::int64_t largest,
                                    std::int64_t alignment) {
    const std::vector<std::int64_t> limits(static_cast<std::size_t>(ranks), largest);
    const std::vector<std::int64_t> earliest = earliest_cuts(line, limits);
    const std::int64_t share = line.elements() / ranks;
    const std::int64_t rest = line.elements() % ranks;
    std::vector<std::int64_t> ideals;
    ideals.reserve(earliest.size());
    for (std::int64_t k = 0; k <= ranks; ++k) ideals.push_back(k * share + k * rest / ranks);
    return cuts_near(line, {limits, earliest, ideals, alignment});
}

}  // namespace vescomm::planner
