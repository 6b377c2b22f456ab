// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/algorithms.h"

namespace vescomm::internal {

// In builds with assertions (meson's b_ndebug=false) rank 0 checks the schedules that are run, if
// that takes milliseconds.
#ifdef NDEBUG
inline constexpr bool checks_schedules = false;
#else
inline constexpr bool checks_schedules = true;
#endif

// Computes the schedules of all ranks, and throws Error(INTERNAL) with the fault that check() finds
// in them. Skips schedules of many ranks or steps, which the tests check, and every all_to_all_v,
// because one rank does not know all its counts.
void check_if_small(const AlgorithmEntry &algorithm, const AnyProblem &problem);

}  // namespace vescomm::internal
