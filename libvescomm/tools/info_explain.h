// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace vescomm::internal {

// The arguments of `vescomm-info --explain`.
struct Question {
    std::string collective;
    std::uint64_t bytes = 1 << 20;
    // Ranks on each node; empty: one node with 4. If `ranks` is set, the number of nodes; empty: 1.
    std::vector<int> nodes;
    int ranks = 0;  // 0: given by `nodes`
    std::string ragged = "equal";
    bool per_node = false;  // all_gather_v: one slab for each node, not for each rank
    bool arrays = false;
    std::string algorithm;  // empty: `forced`, or chosen
    std::string forced;  // VESCOMM_ALGORITHM
    bool reproducible = false;  // VESCOMM_REPRODUCIBLE
    int steps_of = -1;  // rank whose schedule is printed; -1: none
    Machine machine;
};

// Prints the candidates with their predicted times, the fastest first, and the reason for the
// choice. Throws Error(INVALID_ARGUMENT) for inconsistent arguments.
void explain(const Question &question);

// Prints predicted times of all algorithms for each number of ranks, on nodes of question.nodes[0]
// ranks; empty: 4. Throws as explain() does.
void explain_growth(Question question, const std::vector<int> &ranks, bool as_json);

}  // namespace vescomm::internal
