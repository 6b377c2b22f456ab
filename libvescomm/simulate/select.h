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

namespace vescomm::internal {

struct Candidate {
    const AlgorithmEntry *algorithm = nullptr;
    std::size_t variant = 0;  // index in `variants` of select()
    std::optional<double> seconds = {};  // predicted; nullopt if not needed or not possible
};

struct Choice {
    const AlgorithmEntry *algorithm = nullptr;
    std::size_t variant = 0;  // index in `variants` of select()
    std::string why;  // the reason for the choice, a clause
    // All pairs of variant and algorithm that solve the problem, in the order of variants and of
    // the table of algorithms.
    std::vector<Candidate> candidates;
};

// Formats seconds as "12.3 us", "1.23 ms" or "1.23 s".
std::string time_text(double seconds);

// Chooses the algorithm with the least predicted time for a collective. The collective is given as
// one or more variants of the problem, for example on a buffer and on arrays that pass through the
// staging buffer. If two predictions differ by less than a tenth, which is below the accuracy of
// the model, the order of variants and of the table decides. A pure function: ranks with equal
// arguments choose alike. A single candidate is chosen without a prediction. For an all_to_all_v no
// rank knows all counts, so every rank chooses the first candidate.
//
// `forced` is the name of the algorithm that the user requires, or empty. If it comes from the
// environment, `variable` is the name of that variable. Throws Error(INVALID_ARGUMENT) that lists
// the possible names if `forced` does not exist or does not solve the problem.
//
// Cost: predict() for each candidate if there are several.
Choice select(std::span<const AnyProblem> variants, const ElementBytes &bytes,
              const Machine &machine, std::string_view forced, std::string_view variable = {});

}  // namespace vescomm::internal
