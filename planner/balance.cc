// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; with 100,000 ranks a pass over them costs milliseconds.
#include "planner/balance.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace vescomm::planner {
namespace {

// Limit of recut(): ranks times tries.
constexpr std::int64_t max_tried = std::int64_t{1} << 19;

// Mean size in bytes of the block of an element: the precision of a cut.
std::int64_t block_bytes(const Cuttable &buffer) {
    __extension__ typedef unsigned __int128 Wide;
    const Line &line = *buffer.line;
    Wide sum = 0;
    for (std::size_t i = 0; i < line.count(); ++i) {
        const Grid &grid = line.grid(i);
        sum += static_cast<Wide>(grid.elements()) * static_cast<Wide>(grid.block());
    }
    const auto elements = static_cast<Wide>(std::max<std::int64_t>(line.elements(), 1));
    return static_cast<std::int64_t>(sum / elements) * buffer.element_bytes;
}

// Returns the number of buffers, of `left`, that share the next cuts when `cuts` different ones may
// still be made. The number at least halves the rest each time, so that the last cuts serve one
// buffer and their error counts once. It is limited, because the later cuts must be able to
// compensate the error of the shared ones.
std::int64_t buffers_of_next(std::int64_t left, std::int64_t cuts) {
    if (cuts >= left) return 1;
    if (cuts <= 1) return left;
    constexpr std::int64_t doublings = 40;
    const std::int64_t halving = (std::int64_t{1} << std::min(cuts - 1, doublings)) - 1;
    const std::int64_t falling_slowly = divide_up(2 * left, cuts + 1);
    return std::max(std::min(left - halving, left * 3 / 4), falling_slowly);
}

class Balance {
public:
    Balance(std::span<const Cuttable> buffers, const Shares &shares, std::int64_t alignment)
        : buffers_(buffers),
          shares_(shares),
          alignment_(alignment),
          before_(static_cast<std::size_t>(shares.ranks()) + 1, 0),
          result_(buffers.size()) {}

    Balanced run() {
        std::int64_t more = 0;
        for (const Cuttable &buffer : buffers_) more += buffer.count - 1;
        const std::int64_t affordable = max_balanced_cuts / shares_.ranks();
        const std::vector<std::size_t> order = coarse_first();
        for (const std::size_t i : order) {
            std::int64_t different = buffers_[i].count;
            if (affordable < more) {
                const std::int64_t others = different - 1;
                different = 1 + (2 * affordable * others + more) / (2 * more);
            }
            cut_all(i, different);
        }
        if (shares_.even()) improve(order);
        std::vector<std::int64_t> loads;
        for (std::size_t k = 1; k < before_.size(); ++k) {
            loads.push_back(before_[k] - before_[k - 1]);
        }
        return {std::move(result_), shares_.largest_over_share(loads, bytes_)};
    }

private:
    std::vector<std::size_t> coarse_first() const {
        std::vector<std::int64_t> blocks;
        for (const Cuttable &buffer : buffers_) blocks.push_back(block_bytes(buffer));
        std::vector<std::size_t> order(buffers_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::stable_sort(order, std::ranges::greater(),
                                 [&](std::size_t i) { return blocks[i]; });
        return order;
    }

    void cut_all(std::size_t i, std::int64_t different) {
        const Cuttable &buffer = buffers_[i];
        const auto earliest = earliest_cuts(*buffer.line, buffer.limits);
        for (std::int64_t left = buffer.count; left > 0; --different) {
            Cuts cuts;
            cuts.count = buffers_of_next(left, different);
            left -= cuts.count;
            const std::int64_t bytes = cuts.count * buffer.element_bytes;
            bytes_ += bytes * buffer.line->elements();
            std::vector<std::int64_t> ideals = shares_.cumulative(bytes_);
            for (std::size_t k = 0; k < ideals.size(); ++k) {
                ideals[k] = (ideals[k] - before_[k]) / bytes;
            }
            cuts.cuts = cuts_near(*buffer.line, {buffer.limits, earliest, ideals, alignment_});
            for (std::size_t k = 0; k < before_.size(); ++k) before_[k] += bytes * cuts.cuts[k];
            result_[i].push_back(std::move(cuts));
        }
    }

    void improve(const std::vector<std::size_t> &order) {
        for (std::size_t i = order.size(); i-- > 0;) {
            for (std::size_t j = result_[order[i]].size(); j-- > 0;) {
                if (!recut(buffers_[order[i]], result_[order[i]][j])) return;
            }
        }
    }

    // Cuts buffers again, so that the largest rank is as small as possible while all other buffers
    // stay unchanged. Returns false when max_tried is reached.
    bool recut(const Cuttable &buffer, Cuts &cuts) {
        const std::size_t ranks = before_.size() - 1;
        const std::int64_t bytes = cuts.count * buffer.element_bytes;
        std::vector<std::int64_t> others(ranks);  // bytes of each rank in all other buffers
        std::int64_t largest = 0;
        std::int64_t bound = divide_up(bytes_, static_cast<std::int64_t>(ranks));
        for (std::size_t k = 0; k < ranks; ++k) {
            const std::int64_t load = before_[k + 1] - before_[k];
            others[k] = load - bytes * (cuts.cuts[k + 1] - cuts.cuts[k]);
            largest = std::max(largest, load);
            bound = std::max(bound, others[k]);
        }
        std::vector<std::int64_t> limits(ranks);
        const auto set_limits = [&](std::int64_t load) {
            for (std::size_t k = 0; k < ranks; ++k) {
                limits[k] = std::min(buffer.limits[k], (load - others[k]) / bytes);
            }
        };
        const auto fits = [&](std::int64_t load) {
            tried_ += static_cast<std::int64_t>(ranks);
            set_limits(load);
            return possible(*buffer.line, limits);
        };
        const std::int64_t unit = bytes * alignment_;
        std::int64_t low = divide_up(bound, unit);  // in units; less is impossible
        std::int64_t high = largest / unit;  // the current value, rounded down: no improvement
        if (high <= low || !fits((high - 1) * unit)) return tried_ < max_tried;
        --high;
        while (low < high) {
            const std::int64_t middle = low + (high - low) / 2;
            if (fits(middle * unit)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        set_limits(high * unit);
        const auto earliest = earliest_cuts(*buffer.line, limits);
        std::vector<std::int64_t> ideals = shares_.cumulative(bytes_);
        for (std::size_t k = 0; k <= ranks; ++k) {
            before_[k] -= bytes * cuts.cuts[k];
            ideals[k] = (ideals[k] - before_[k]) / bytes;
        }
        cuts.cuts = cuts_near(*buffer.line, {limits, earliest, ideals, alignment_});
        for (std::size_t k = 0; k <= ranks; ++k) before_[k] += bytes * cuts.cuts[k];
        return tried_ < max_tried;
    }

    std::span<const Cuttable> buffers_;
    const Shares &shares_;
    std::int64_t alignment_;
    std::vector<std::int64_t> before_;  // bytes before each cut, of all buffers cut so far
    std::int64_t bytes_ = 0;  // of all buffers cut so far
    std::int64_t tried_ = 0;  // ranks times tries of recut()
    std::vector<std::vector<Cuts>> result_;
};

}  // namespace

Balanced balance(std::span<const Cuttable> buffers, const Shares &shares, std::int64_t alignment) {
    return Balance(buffers, shares, alignment).run();
}

}  // namespace vescomm::planner
