// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "planner/arrange.h"

namespace vescomm::planner {

enum class Verdict {
    found,  // an order that is better than the best so far
    refuted,  // no order fits: proved
    unknown,
};

// Called with an order of the items; returns whether it is better than the best so far.
using Offer = std::function<bool(std::vector<std::size_t> order)>;

// One question: is there an order in which the items fit into `ranks` shards of `shard` elements?
struct Question {
    std::span<const Kind> kinds;
    std::int64_t shard = 0;
    int ranks = 1;
    std::int64_t max_multisets = 0;  // to choose from, so as to answer soon rather than surely
};

// Whether so many are enough for every multiset of items.
bool covers_all(std::span<const Kind> kinds, std::int64_t max_multisets);

// Takes steps off the budget, of which there must be some.
Verdict decide(const Question &question, Filler &filler, const Offer &offer, Budget &budget);

// The smallest multiple of `step`, from `low` to the best shard so far, that is not refuted. Among
// these multiples a larger one must be no worse, so that what refutes one refutes all smaller ones.
// Asks decide_one() about some; that may make smaller what best() returns.
std::int64_t smallest_not_refuted(std::int64_t step, std::int64_t low,
                                  const std::function<std::int64_t()> &best,
                                  const std::function<Verdict(std::int64_t)> &decide_one);

}  // namespace vescomm::planner
