// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "schedule/algorithms.h"

namespace vescomm {

struct Choice {
    const AlgorithmEntry *algorithm = nullptr;
    std::string why;  // one sentence
};

// Chooses an algorithm for a problem: a pure function, so all ranks choose alike. `forced` is a
// name that the caller insists on, or empty. Throws Error(INVALID_ARGUMENT), listing the names
// there are, when that one does not exist or does not solve the problem.
Choice select(const Problem &problem, std::string_view forced);

}  // namespace vescomm
