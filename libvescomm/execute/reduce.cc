// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Reductions of any number of sources of any type, composed of the loops in loops/.
//
//     sources ──(widen)──► fold, some at a time ──► fold partials ──(divide, narrow)──► to
//                            │        ▲               │        ▲
//                            └─ sum ──┘               └─ sum ──┘
//
// If one loop suffices, it runs over the whole array. Otherwise the array is cut into tiles, so
// that intermediate results stay in the first-level cache.
// Zone: per tile.
#include <algorithm>
#include <cassert>

#include "execute/kernels.h"
#include "execute/tiles.h"

namespace vescomm::internal {

namespace {

// Sources that are widened at a time before they are folded, each into half a tile: all of them
// must fit into the cache.
constexpr std::size_t widened_at_once = 4;
constexpr std::size_t widened_bytes = tile_bytes / 2;

bool divides(const Reduction &how, vescomm_type_t type) {
    return how.divisor != 1 && is_integer(type);
}

vescomm_op_t op_of_partials(vescomm_op_t op) {
    return op == VESCOMM_PREMULTIPLIED_SUM ? VESCOMM_SUM : op;
}

// Sources of one type, and the loops that fold them.
struct Group {
    Group(const Loops &loops, vescomm_op_t op, std::span<const void *const> from,
          vescomm_type_t from_type, vescomm_type_t sum_type, vescomm_type_t to_type)
        : sources(from), type(from_type) {
        if (sources.empty()) return;
        FoldLoop loop = loops.fold(op, sum_type, type);
        max = loop.max;
        if (loop.run == nullptr) {
            widen = loops.convert(sum_type, type);
            loop = loops.fold(op, sum_type, sum_type);
            max = widened_at_once;
        }
        fold = loop.run;
        loop = loops.fold(op, to_type, widen == nullptr ? type : sum_type);
        fold_last = loop.run;
        if (fold_last != nullptr) max = std::min(max, loop.max);
    }

    std::span<const void *const> sources;
    vescomm_type_t type;
    Convert *widen = nullptr;  // runs before `fold`, if there is no loop for the type itself
    Fold *fold = nullptr;
    Fold *fold_last = nullptr;  // gives the type of the result; nullptr: there is no such loop
    std::size_t max = 0;  // sources in one call of a loop
    const double *factors = nullptr;
};

// The state of one call of reduce().
class Folding {
public:
    Folding(const Loops &loops, const Reduction &how, vescomm_type_t sum_type, void *to,
            vescomm_type_t to_type)
        : loops_(loops),
          how_(how),
          sum_type_(sum_type),
          to_(to),
          to_type_(to_type),
          narrow_(to_type == sum_type ? nullptr : loops.convert(to_type, sum_type)) {}

    // Begins the elements [first, first + count).
    void begin(std::size_t first, std::size_t count) noexcept {
        first_ = first;
        count_ = count;
        start_ = how_.start == nullptr ? nullptr : element(how_.start, sum_type_, first);
    }

    // Folds a group into the sum; the last group into `to`.
    void add(const Group &group, bool last) noexcept {
        for (std::size_t done = 0; done < group.sources.size(); done += group.max) {
            const std::size_t n = std::min(group.max, group.sources.size() - done);
            FoldArguments arguments{.sources = &group.sources[done],
                                    .n = static_cast<int>(n),
                                    .first = first_,
                                    .start = start_,
                                    .factors = group.factors ? group.factors + done : nullptr,
                                    .scale = 1,
                                    .to = sum_.bytes,
                                    .count = count_};
            const void *widened[widened_at_once];
            if (group.widen != nullptr) {
                for (std::size_t k = 0; k < n; ++k) {
                    const void *source = element(arguments.sources[k], group.type, first_);
                    group.widen(widened_[k], source, count_);
                    widened[k] = widened_[k];
                }
                arguments.sources = widened;
                arguments.first = 0;
            }
            if (last && done + n == group.sources.size()) return finish(group, arguments);
            group.fold(arguments);
            start_ = sum_.bytes;
        }
    }

private:
    // The last fold, then division, narrowing and streaming.
    void finish(const Group &group, FoldArguments &arguments) noexcept {
        void *const to = element(to_, to_type_, first_);
        void *const out = how_.streaming ? out_.bytes : to;
        arguments.scale = 1.0 / how_.divisor;
        if (group.fold_last != nullptr) {
            arguments.to = out;
            group.fold_last(arguments);
        } else {
            group.fold(arguments);
            narrow_(out, sum_.bytes, count_);
        }
        if (divides(how_, to_type_)) loops_.divide(out, to_type_, count_, how_.divisor);
        if (how_.streaming) loops_.stream(to, out, count_ * vescomm_type_get_bytes(to_type_));
    }

    const Loops &loops_;
    const Reduction &how_;
    const vescomm_type_t sum_type_;
    void *const to_;
    const vescomm_type_t to_type_;
    Convert *const narrow_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    const void *start_ = nullptr;  // first operand of the next fold; nullptr: none
    Tile sum_, out_;
    alignas(64) std::byte widened_[widened_at_once][widened_bytes];
};

// If one loop does not suffice. Not inlined: a frame of tiles costs a small reduction a third of
// its time.
[[gnu::noinline]] void reduce_in_tiles(const Loops &loops, const Reduction &how,
                                       std::span<const void *const> sources, vescomm_type_t type,
                                       std::span<const void *const> partials, void *to,
                                       vescomm_type_t to_type, std::size_t count) noexcept {
    const vescomm_type_t sum_type = accumulator_of(type);
    Group contributions(loops, how.op, sources, type, sum_type, to_type);
    contributions.factors = how.factors;
    const Group sums(loops, op_of_partials(how.op), partials, sum_type, sum_type, to_type);

    const std::size_t bytes = contributions.widen != nullptr ? widened_bytes : tile_bytes;
    const std::size_t tile = bytes / vescomm_type_get_bytes(sum_type);

    Folding folding(loops, how, sum_type, to, to_type);
    for (std::size_t first = 0; first < count; first += tile) {
        folding.begin(first, std::min(tile, count - first));
        folding.add(contributions, partials.empty());
        folding.add(sums, true);
    }
    if (how.streaming) fence_streams();
}

}  // namespace

Fold *Kernels::single_loop(const Reduction &how, std::size_t sources, vescomm_type_t type,
                           vescomm_type_t to_type) const noexcept {
    if (how.streaming || divides(how, type)) return nullptr;
    const FoldLoop loop = loops.fold(how.op, to_type, type);
    return sources <= loop.max ? loop.run : nullptr;
}

void Kernels::reduce(const Reduction &how, std::span<const void *const> sources,
                     vescomm_type_t type, std::span<const void *const> partials, void *to,
                     vescomm_type_t to_type, std::size_t count) const noexcept {
    assert(can_reduce(to_type, type) && can_combine(how.op, type));
    assert(!sources.empty() || !partials.empty());
    assert(how.op != VESCOMM_PREMULTIPLIED_SUM || sources.empty() || how.factors != nullptr);
    if (sources.empty() != partials.empty()) {
        const bool sums = sources.empty();
        const auto all = sums ? partials : sources;
        Reduction plain = how;
        if (sums) plain.op = op_of_partials(how.op);
        Fold *loop = single_loop(plain, all.size(), sums ? accumulator_of(type) : type, to_type);
        if (loop != nullptr)
            return loop({.sources = all.data(),
                         .n = static_cast<int>(all.size()),
                         .first = 0,
                         .start = how.start,
                         .factors = sums ? nullptr : how.factors,
                         .scale = 1.0 / how.divisor,
                         .to = to,
                         .count = count});
    }
    reduce_in_tiles(loops, how, sources, type, partials, to, to_type, count);
}

}  // namespace vescomm::internal
