// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Random problems with all properties of tensors, too large for the reference solution.
#pragma once

#include <iterator>
#include <random>
#include <span>
#include <string>

#include "random_problem.h"

namespace vescomm::planner::reference {

inline std::int64_t pick(std::mt19937 &random, std::span<const std::int64_t> values) {
    return values[static_cast<std::size_t>(draw(random, 0, std::ssize(values) - 1))];
}

// Makes tensors with few or no elements, often with an alignment, and often with a restarting grid
// whose last blocks are short.
inline Tensor random_small_tensor(std::mt19937 &random, int index) {
    Tensor tensor = random_tensor(random, index);
    constexpr std::int64_t alignments[] = {0, 0, 0, 1, 2, 3, 4, 6};
    tensor.alignment = pick(random, alignments);
    if (draw(random, 0, 9) == 0 && !tensor.shape.empty()) tensor.shape.back() = 0;
    return tensor;
}

// Makes tensors as in a layer: vectors, matrices, fused experts and convolutions, with round or odd
// extents.
inline Tensor random_layer_tensor(std::mt19937 &random, int index) {
    constexpr std::int64_t extents[] = {1, 3, 7, 27, 64, 96, 100, 127, 128, 257, 576, 720, 1000};
    constexpr std::int64_t blocks[] = {-1, 0, 1, 1, 2, 7, 16, 32, 128};
    constexpr std::int64_t alignments[] = {0, 0, 0, 0, 8, 12, 128};
    Tensor tensor;
    tensor.name = std::string("t").append(std::to_string(index));
    const std::int64_t dimensions = draw(random, 0, 4);
    for (std::int64_t d = 0; d < dimensions; ++d) {
        const bool small = d >= 2 || (dimensions == 4 && d == 0);
        tensor.shape.push_back(small ? draw(random, 1, 9) : pick(random, extents));
    }
    if (draw(random, 0, 30) == 0) tensor.shape.push_back(0);
    tensor.block_rows = pick(random, blocks);
    tensor.batch_dimensions = dimensions > 2 ? static_cast<std::int32_t>(draw(random, 0, 2)) : 0;
    tensor.alignment = pick(random, alignments);
    return tensor;
}

// Makes a tensor that lies over many shards, with rows of few but different prime factors, so that
// equal shards can be multiples of hundreds of different numbers.
inline Tensor random_long_tensor(std::mt19937 &random, int index) {
    constexpr std::int64_t rows[] = {2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19};
    const std::int64_t columns = pick(random, rows);
    const std::int64_t max = std::int64_t{1} << draw(random, 0, 30);
    Tensor tensor;
    tensor.name = std::string("t").append(std::to_string(index));
    tensor.shape = {draw(random, max / 2, max) / columns, columns};
    return tensor;
}

using RandomTensor = Tensor (*)(std::mt19937 &random, int index);

inline Problem random_problem_of(std::mt19937 &random, RandomTensor make, int max_tensors,
                                 int max_ranks) {
    Problem problem;
    problem.ranks = static_cast<int>(draw(random, 1, max_ranks));
    const auto count = static_cast<int>(draw(random, 0, max_tensors));
    for (int i = 0; i < count; ++i) problem.tensors.push_back(make(random, i));
    return problem;
}

}  // namespace vescomm::planner::reference
