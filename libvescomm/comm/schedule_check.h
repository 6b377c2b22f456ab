// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/algorithms.h"

namespace vescomm {

// In builds with assertions (meson's b_ndebug=false) rank 0 proves the schedules that are run,
// where that takes milliseconds.
#ifdef NDEBUG
inline constexpr bool checks_schedules = false;
#else
inline constexpr bool checks_schedules = true;
#endif

// Makes the schedules of all ranks, and throws Error(INTERNAL) with what check() finds wrong with
// them. Of more than a few steps, or an all_to_all_v, of which one rank does not know all counts,
// nothing is said: the tests prove those.
void check_if_small(const AlgorithmEntry &algorithm, const Problem &problem);

}  // namespace vescomm
