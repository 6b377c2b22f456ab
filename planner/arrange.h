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

// The remaining part of Options::search_steps.
struct Budget {
    std::int64_t steps = 0;
};

// Kinds whose items are to be arranged, and the positions of a Filler between which they must lie.
struct Arrangement {
    std::vector<std::size_t> kinds;  // indices, at least one; stands for all items of these kinds
    std::int64_t begin = 0;  // aligned
    std::int64_t limit = 0;  // the last item ends at or before this
};

// Finds an order in which the items of the chosen kinds end at or before the limit. Returns the
// kinds of the items in that order; an empty sequence when there is no such order; nothing when the
// budget ran out. Exact.
//
// The items laid out so far are a multiset. Only the end of its last item matters to the items that
// follow, and an earlier end is never worse, because Filler::end() is monotone. So the earliest end
// of a multiset follows from those of the multisets with one item less:
//
//     earliest(M) = min over kinds k in M of  end(k, earliest(M - k))  + padding of k
//
// A multiset from which the limit is out of reach is dropped. Multisets that differ only in the
// first kind form a row. The multisets kept in a row are usually few and adjacent:
//
//     items of     |              . o o .              o  kept
//     the second   |          . o o o .                .  dropped
//     kind         |      . o o o .
//                  |  o o o .                              the others are never visited
//                  +---------------------------
//                     items of the first kind
//
// Cost: memory for each multiset kept; one step for each row, each multiset kept, and each kind in
// it.
std::optional<std::vector<std::size_t>> arrange(std::span<const Kind> kinds,
                                                const Arrangement &arrangement, Filler &filler,
                                                Budget &budget);

}  // namespace vescomm::planner
