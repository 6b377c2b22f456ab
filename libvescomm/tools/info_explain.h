// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace vescomm {

// What `vescomm-info --explain` is asked.
struct Question {
    std::string collective;
    std::uint64_t bytes = 1 << 20;
    std::vector<int> nodes{4};  // ranks on each; with `ranks`, how many there are
    int ranks = 0;
    std::string ragged = "equal";
    bool per_rank = false;
    bool arrays = false;
    std::string algorithm;  // empty: as the environment says, or chosen
    std::string forced;  // VESCOMM_ALGORITHM
    bool reproducible = false;  // VESCOMM_REPRODUCIBLE
    int steps_of = -1;
    Machine machine;
};

// Prints the candidates with their predicted times, the best first, and why one of them is chosen.
// Throws Error(INVALID_ARGUMENT) where the question makes no sense.
void explain(const Question &question);

// Prints predicted times of all algorithms for so many ranks each, on nodes of question.nodes[0].
void explain_growth(Question question, const std::vector<int> &ranks, bool as_json);

}  // namespace vescomm
