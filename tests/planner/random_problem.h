// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Small random problems of every kind, the same on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "vescomm/planner.hpp"

namespace vescomm::planner::reference {

inline std::int64_t draw(std::mt19937 &random, std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

inline Tensor random_tensor(std::mt19937 &random, int index) {
    Tensor tensor;
    tensor.name = std::string("t").append(std::to_string(index));
    tensor.block_rows = draw(random, -1, 4);
    switch (draw(random, 0, 3)) {
        case 0:
            tensor.shape = {draw(random, 1, 12)};
            break;
        case 1:
            tensor.shape = {draw(random, 1, 9), draw(random, 1, 3)};
            break;
        default:
            tensor.shape = {draw(random, 1, 7), draw(random, 1, 7), draw(random, 1, 2)};
            tensor.batch_dimensions = 1;
    }
    return tensor;
}

inline Problem random_problem(std::mt19937 &random, int max_tensors, int max_ranks) {
    Problem problem;
    problem.ranks = static_cast<int>(draw(random, 1, max_ranks));
    const auto count = static_cast<int>(draw(random, 1, max_tensors));
    for (int i = 0; i < count; ++i) problem.tensors.push_back(random_tensor(random, i));
    return problem;
}

inline std::string print(const Problem &problem) {
    std::string text = std::to_string(problem.ranks) + " ranks:";
    for (const Tensor &tensor : problem.tensors) {
        text += " [";
        for (const std::int64_t extent : tensor.shape) text += std::to_string(extent) + " ";
        text += "] block " + std::to_string(tensor.block_rows) + " batch " +
                std::to_string(tensor.batch_dimensions) + " alignment " +
                std::to_string(tensor.alignment);
    }
    for (const std::int64_t weight : problem.weights) {
        text += " weight " + std::to_string(weight);
    }
    return text;
}

}  // namespace vescomm::planner::reference
