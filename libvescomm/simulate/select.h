// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulate/predict.h"

namespace vescomm {

struct Candidate {
    const AlgorithmEntry *algorithm = nullptr;
    std::optional<double> seconds;  // predicted; nothing when there was no need, or no way
};

struct Choice {
    const AlgorithmEntry *algorithm = nullptr;
    std::string why;  // one sentence
    std::vector<Candidate> candidates;  // all that suit, in the order of the table
};

// Chooses the algorithm of the least predicted time. Where two are closer than a tenth, which is
// less than a model can tell, the order of the table decides. A pure function of its arguments, so
// ranks that agree about them choose alike; nothing is predicted where only one suits. `forced` is
// a name that the caller insists on, or empty. Throws Error(INVALID_ARGUMENT), listing the names
// there are, when that one does not exist or does not solve the problem.
//
// Cost: predict() for each that suits, when there are several.
Choice select(const Problem &problem, const ElementBytes &bytes, const Machine &machine,
              std::string_view forced);

}  // namespace vescomm
