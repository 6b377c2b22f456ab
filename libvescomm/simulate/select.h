// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulate/predict.h"

namespace vescomm {

struct Candidate {
    const AlgorithmEntry *algorithm = nullptr;
    std::size_t variant = 0;  // of the problem
    std::optional<double> seconds = {};  // predicted; nothing when there was no need, or no way
};

struct Choice {
    const AlgorithmEntry *algorithm = nullptr;
    std::size_t variant = 0;  // of the problem
    std::string why;  // one sentence
    std::vector<Candidate> candidates;  // all that suit, in the order of the table
};

// For people: "12.3 us".
std::string microseconds(double seconds);

// Chooses the algorithm of the least predicted time for a collective that can be put in one or more
// forms: as it lies in a buffer, say, and as arrays that pass through the staging buffer. Where two
// are closer than a tenth, which is less than a model can tell, the order of the forms and of the
// table decides. A pure function of its arguments, so ranks that agree about them choose alike;
// nothing is predicted where only one suits. Of an all_to_all_v nobody knows all counts, so all
// take the first that suits. `forced` is a name that the caller insists on, or empty; where it
// comes from the environment, `variable` is that of the name. Throws Error(INVALID_ARGUMENT),
// listing the names there are, when that one does not exist or does not solve the problem.
//
// Cost: predict() for each that suits, when there are several.
Choice select(std::span<const Problem> variants, const ElementBytes &bytes, const Machine &machine,
              std::string_view forced, std::string_view variable = {});

}  // namespace vescomm
