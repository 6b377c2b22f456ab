// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/prove.h"

#include <algorithm>

namespace vescomm::planner {
namespace {

// Returns the number of whole shards that an item of the kind spans, wherever it lies.
std::int64_t whole_shards(const Question &question, const Filler &filler, std::size_t kind) {
    return filler.shortest(kind) / question.shard;
}

constexpr std::int64_t max_rows = std::int64_t{1} << 20;  // of 24 bytes

struct Choice {
    std::vector<std::size_t> kept;
    std::vector<std::size_t> dropped;
};

// Keeps the kinds whose ends are spread furthest over shards, until the limit of multisets is
// reached. Drops the others.
Choice choose(const Question &question, const Filler &filler) {
    std::vector<std::pair<std::int64_t, std::size_t>> kinds;
    for (std::size_t i = 0; i < question.kinds.size(); ++i) {
        const std::int64_t ends = filler.shortest(i) % question.shard;
        kinds.emplace_back(times(ends, question.kinds[i].count()), i);
    }
    std::ranges::stable_sort(kinds, std::ranges::greater(),
                             &std::pair<std::int64_t, std::size_t>::first);
    Choice choice;
    std::int64_t multisets = 1;
    std::int64_t row = 1;  // the longest digit
    for (const auto &[spread, kind] : kinds) {
        const std::int64_t digit = question.kinds[kind].count() + 1;
        const std::int64_t more = times(multisets, digit);
        const std::int64_t longer = std::max(row, digit);
        if (more <= question.max_multisets && more / longer <= max_rows) {
            multisets = more;
            row = longer;
            choice.kept.push_back(kind);
        } else {
            choice.dropped.push_back(kind);
        }
    }
    // The kind with most items first: fewer rows.
    std::ranges::stable_sort(choice.kept, std::ranges::greater(),
                             [&](std::size_t i) { return question.kinds[i].count(); });
    std::ranges::stable_sort(choice.dropped, std::ranges::greater(),
                             [&](std::size_t i) { return question.kinds[i].grid().block(); });
    return choice;
}

// Converts a sequence of kinds to an order of items. Items of one kind keep the user's order.
std::vector<std::size_t> order_of(std::span<const Kind> kinds,
                                  const std::vector<std::size_t> &sequence) {
    std::vector<std::size_t> next(kinds.size(), 0);
    std::vector<std::size_t> order;
    order.reserve(sequence.size());
    for (const std::size_t kind : sequence) order.push_back(kinds[kind].items[next[kind]++]);
    return order;
}

std::vector<std::size_t> joined(std::vector<std::size_t> first,
                                const std::vector<std::size_t> &second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

std::vector<std::size_t> all_items(std::span<const Kind> kinds,
                                   const std::vector<std::size_t> &chosen) {
    std::vector<std::size_t> sequence;
    for (const std::size_t kind : chosen) {
        sequence.insert(sequence.end(), kinds[kind].items.size(), kind);
    }
    return sequence;
}

}  // namespace

bool covers_all(std::span<const Kind> kinds, std::int64_t max_multisets) {
    std::int64_t multisets = 1;
    for (const Kind &kind : kinds) multisets = times(multisets, kind.count() + 1);
    return multisets <= max_multisets;
}

// Some kinds are kept, others dropped. If a layout of all items exists, there is a layout of the
// kept items that ends earlier: remove an item that lay in [a, b), and move the following items
// back by the whole shards in b - a. All shards are alike, so legal starts stay legal. Hence, if
// every layout of the kept items ends after
//
//     ranks * shard - shard * (sum of the whole shards of each dropped item)
//
// the shard is refuted for all items. The search over the kept items is exact.
Verdict decide(const Question &question, Filler &filler, const Offer &offer, Budget &budget) {
    const auto kinds = question.kinds;
    std::int64_t limit = question.shard * question.ranks;
    const Choice choice = choose(question, filler);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        if (filler.end(i, 0) == unbounded) return Verdict::refuted;
    }
    for (const std::size_t kind : choice.dropped) {
        limit -= question.shard * times(whole_shards(question, filler, kind), kinds[kind].count());
    }
    if (choice.kept.empty()) return Verdict::unknown;
    const auto sequence = arrange(kinds, {choice.kept, 0, limit}, filler, budget);
    if (!sequence) return Verdict::unknown;
    if (sequence->empty()) return Verdict::refuted;

    // Exact for the kept items. Try the dropped ones after them, then before them.
    const std::vector<std::size_t> others = all_items(kinds, choice.dropped);
    if (offer(order_of(kinds, joined(*sequence, others)))) return Verdict::found;
    if (others.empty() || budget.steps <= 0) return Verdict::unknown;
    std::int64_t begin = 0;
    for (const std::size_t kind : others) {
        begin = plus(filler.end(kind, begin), filler.padding(kind));
        if (begin > question.shard * question.ranks) return Verdict::unknown;
    }
    const auto after =
        arrange(kinds, {choice.kept, begin, question.shard * question.ranks}, filler, budget);
    const bool found = after && !after->empty() && offer(order_of(kinds, joined(others, *after)));
    return found ? Verdict::found : Verdict::unknown;
}

// Asks about the largest multiple first: if it is refuted, all are. Then bisects.
std::int64_t smallest_not_refuted(std::int64_t step, std::int64_t low,
                                  const std::function<std::int64_t()> &best,
                                  const std::function<Verdict(std::int64_t)> &decide_one) {
    std::int64_t first = divide_up(low, step);  // may be possible
    std::int64_t open = unbounded;  // neither found nor refuted
    bool half = false;
    for (;;) {
        const std::int64_t end = std::min(divide_up(best(), step), open);
        if (first >= end) break;
        const std::int64_t asked = half ? first + (end - first) / 2 : end - 1;
        half = !half;
        switch (decide_one(asked * step)) {
            case Verdict::found:
                break;
            case Verdict::refuted:
                first = asked + 1;
                half = false;
                break;
            case Verdict::unknown:
                open = asked;
                half = true;
        }
    }
    return std::min(first * step, best());
}

}  // namespace vescomm::planner
