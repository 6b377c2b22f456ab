// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vescomm::internal {

// A rectangular part of a tensor: tensor[start[0] : start[0] + extent[0], ...].
struct Box {
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> extent;

    bool operator==(const Box &) const = default;
};

// Splits row-major elements [first, first + elements) of a tensor into boxes, in order of elements.
// Returns no boxes for no elements. Checkpoint formats describe shards by boxes. A ragged shard
// needs at most 2 * dimensions - 1 boxes:
//
//     . . . a a a      elements from the middle of a row to the middle of another:
//     b b b b b b      the rest of the first row, whole rows, the beginning of the last
//     b b b b b b
//     c c . . . .
//
// `first` + `elements` must not exceed the product of the shape. Cost: O(dimensions^2).
std::vector<Box> boxes(std::span<const std::int64_t> shape, std::int64_t first,
                       std::int64_t elements);

}  // namespace vescomm::internal
