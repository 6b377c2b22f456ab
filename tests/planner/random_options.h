// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Problems and options for tests of the search over orders.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "random_problem.h"

namespace vescomm::planner::reference {

// Makes a problem in which half of the tensors equal another one, as in real layers.
inline Problem random_problem_with_twins(std::mt19937 &random, int max_tensors, int max_ranks) {
    Problem problem = random_problem(random, max_tensors, max_ranks);
    for (std::size_t i = 1; i < problem.tensors.size(); ++i) {
        if (draw(random, 0, 1) == 0) continue;
        const std::string name = problem.tensors[i].name;
        problem.tensors[i] = problem.tensors[draw(random, 0, static_cast<std::int64_t>(i) - 1)];
        problem.tensors[i].name = name;
    }
    return problem;
}

inline Options random_options(std::mt19937 &random, Mode mode) {
    Options options;
    options.mode = mode;
    options.start_alignment = draw(random, 1, 4);
    options.cut_alignment = draw(random, 1, 3);
    return options;
}

inline std::string print(const Problem &problem, const Options &options) {
    return std::string(options.mode == Mode::uniform ? "uniform" : "ragged") + ", alignments " +
           std::to_string(options.start_alignment) + " " + std::to_string(options.cut_alignment) +
           ", " + std::to_string(options.search_steps) + " steps, " + print(problem);
}

}  // namespace vescomm::planner::reference
