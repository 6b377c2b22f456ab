// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; the search walks the line a few dozen times.
#include "planner/cut.h"

#include <algorithm>

namespace vescomm::planner {
namespace {

// The legal cut in [low, high] at a multiple of `alignment` that is nearest to `ideal`, if any.
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
    // Backwards through [begin of item, its end), and the free space before the item.
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
    // Forwards through the free space before each item, and [its begin, its end).
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

std::optional<std::int64_t> smallest_largest_shard(const Line &line, int ranks, std::int64_t unit,
                                                   std::int64_t bound, std::int64_t best) {
    std::int64_t block = 0;
    for (std::size_t i = 0; i < line.count(); ++i) {
        block = std::max(block, line.grid(i).block());
    }
    // Every shard but the last can come within a block of its limit, so `plenty` always suffices.
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

// Cut k may lie between the earliest place from which the later shards still reach the end, and the
// latest that shard k - 1 reaches; every legal cut in between leaves the rest possible.
std::vector<std::int64_t> even_cuts(const Line &line, int ranks, std::int64_t largest,
                                    std::int64_t alignment) {
    std::vector<std::int64_t> cuts(static_cast<std::size_t>(ranks) + 1, 0);
    cuts.back() = line.elements();
    Walker earliest(line);
    for (std::size_t k = cuts.size() - 1; k-- > 1;) {  // the earliest places, for now
        earliest.go(std::max<std::int64_t>(cuts[k + 1] - largest, 0));
        cuts[k] = earliest.ceil();
    }
    Walker latest(line);
    Walker middle(line);
    const std::int64_t share = line.elements() / ranks;
    const std::int64_t rest = line.elements() % ranks;
    const std::int64_t reach = std::max(share, alignment);
    for (std::size_t k = 1; k + 1 < cuts.size(); ++k) {
        const std::int64_t low = std::max(cuts[k], cuts[k - 1]);
        latest.go(std::min(plus(cuts[k - 1], largest), line.elements()));
        const std::int64_t high = latest.floor();
        const auto rank = static_cast<std::int64_t>(k);
        const std::int64_t ideal = std::clamp(rank * share + rank * rest / ranks, low, high);
        middle.go(ideal);
        // No further than a shard away, which would look through many items for little.
        const std::int64_t near_low = std::max(low, ideal - reach);
        const std::int64_t near_high = std::min(high, plus(ideal, reach));
        std::optional<std::int64_t> cut;
        for (std::int64_t unit = alignment; !cut && unit > 1; unit /= 2) {
            cut = nearest(middle, ideal, near_low, near_high, unit);
            if (unit % 2 != 0) break;
        }
        if (!cut) {
            const std::int64_t below = middle.floor();
            const std::int64_t above = middle.ceil();
            cut = ideal - below <= above - ideal ? below : above;
        }
        cuts[k] = *cut;
    }
    return cuts;
}

}  // namespace vescomm::planner
