// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/kinds.h"

namespace vescomm::planner {

// What is left of Options::search_steps.
struct Budget {
    std::int64_t steps = 0;
};

// Some kinds and where they begin and may end, in the positions of a Filler.
struct Arrangement {
    std::vector<std::size_t> kinds;  // indices, at least one; all items of these kinds
    std::int64_t begin = 0;  // aligned
    std::int64_t limit = 0;
};

// Finds an order in which the items of the chosen kinds end at or before the limit, and returns the
// kind of each in turn; empty when there is no such order, nothing when the budget ran out. Exact.
//
// Whatever the order, what has been laid out is a multiset of items, and where its last item ends
// is all that matters to those that follow; the sooner the better, because Filler::end() never
// falls. So the earliest end of a multiset follows from those of the multisets with one item less:
//
//     earliest(M) = min over kinds k in M of  end(k, earliest(M - k))  + padding of k
//
// A multiset from which the limit is out of reach is dropped. Multisets that differ only in the
// first kind are a row, and those that are left of a row usually few and close together:
//
//     items of     |              . o o .              o  left
//     the second   |          . o o o .                .  dropped
//     kind         |      . o o o .
//                  |  o o o .                              all else is never looked at
//                  +---------------------------
//                     items of the first kind
//
// Cost: memory for what is left; a step for each row, each multiset left, and each kind in it.
std::optional<std::vector<std::size_t>> arrange(std::span<const Kind> kinds,
                                                const Arrangement &arrangement, Filler &filler,
                                                Budget &budget);

}  // namespace vescomm::planner
