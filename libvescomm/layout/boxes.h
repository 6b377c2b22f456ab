// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vescomm {

// A part of a tensor as slicing calls see it: tensor[start[0] : start[0] + extent[0], ...].
struct Box {
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> extent;

    bool operator==(const Box &) const = default;
};

// The boxes that row-major elements [first, first + elements) of a tensor are, in their order; none
// when there are no elements. Checkpoint formats describe shards by boxes, and a ragged shard is
// at most 2 * dimensions - 1 of them:
//
//     . . . a a a      elements from the middle of a row to the middle of another:
//     b b b b b b      the rest of the first row, whole rows, the beginning of the last
//     b b b b b b
//     c c . . . .
//
// `first` + `elements` is at most the product of the shape. Cost: O(dimensions^2).
std::vector<Box> boxes(std::span<const std::int64_t> shape, std::int64_t first,
                       std::int64_t elements);

}  // namespace vescomm
