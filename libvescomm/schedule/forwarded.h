// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm::internal {

// Small blocks that pass through a local peer of their receiver, or in a gather_v of their sender,
// and their part of the staging buffer.

// Elements of the largest block that is forwarded, if `places` forwarded blocks need a place in the
// staging buffer. They take at most a quarter of it, and none is larger than is worth a copy.
std::int64_t largest_forwarded(const ArrayProblem &problem, std::int64_t places);
// The part of the staging buffer that the forwarded blocks leave.
Extent beside_forwarded(const ArrayProblem &problem, std::int64_t places);

// True if a block of at most `max_forwarded` elements passes through a local peer of its receiver,
// or in a gather_v of its sender (common/two_level.cc, gather_v/two_level.cc).
bool is_forwarded(const ArrayProblem &problem, int from, int to, std::int64_t max_forwarded);

}  // namespace vescomm::internal
