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
    found,  // found an order that is better than the best so far
    refuted,  // proved that no order fits
    unknown,  // neither, for instance because the budget is spent
};

// Called with an order of the items; returns whether it is better than the best so far.
using Offer = std::function<bool(std::vector<std::size_t> order)>;

// One question: is there an order in which the items fit into `ranks` shards of `shard` elements?
struct Question {
    std::span<const Kind> kinds;  // borrowed
    std::int64_t shard = 0;  // elements
    int ranks = 1;
    // Limit of the multisets to search. A smaller limit is faster and more often ends in
    // Verdict::unknown.
    std::int64_t max_multisets = 0;
};

// Returns true when the items have at most `max_multisets` multisets, so all can be searched.
bool covers_all(std::span<const Kind> kinds, std::int64_t max_multisets);

// Answers one question. Subtracts the steps taken from the budget, which must not be empty.
Verdict decide(const Question &question, Filler &filler, const Offer &offer, Budget &budget);

// Returns the smallest multiple of `step`, from `low` to the best shard so far, that is not
// refuted. A larger multiple must never be worse, so refuting one refutes all smaller ones. Calls
// decide_one() for some multiples; a call may reduce the value that best() returns.
std::int64_t smallest_not_refuted(std::int64_t step, std::int64_t low,
                                  const std::function<std::int64_t()> &best,
                                  const std::function<Verdict(std::int64_t)> &decide_one);

}  // namespace vescomm::planner
