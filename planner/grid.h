// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "planner/arithmetic.h"

namespace vescomm::planner {

// The numbers that are congruent to `residue` modulo `modulus`.
struct Residue {
    std::int64_t residue = 0;
    std::int64_t modulus = 1;
};

// The elements [low, high], both ends included; empty when low > high.
struct Range {
    std::int64_t low = 0;
    std::int64_t high = 0;
};

// The legal cuts of one tensor, in elements from its start. Blocks restart in every sub-matrix, and
// the last block of a sub-matrix may be short:
//
//     elements    |  sub-matrix 0    |  sub-matrix 1    |
//     boundaries  0     b     2b     s     s+b   s+2b   2s
//
// When blocks divide sub-matrices, the boundaries are the multiples of a block. The constructor
// then ignores the sub-matrices, so simple() is the common case.
class Grid {
public:
    // `elements` is at least 1, `sub_matrix` divides it, and `block` is at least 1.
    Grid(std::int64_t elements, std::int64_t sub_matrix, std::int64_t block) noexcept;

    std::int64_t elements() const noexcept { return elements_; }
    std::int64_t sub_matrix() const noexcept { return sub_matrix_; }
    // Elements of the largest block.
    std::int64_t block() const noexcept { return block_; }
    // True when all boundaries are multiples of a block.
    bool simple() const noexcept { return sub_matrix_ == elements_; }
    // True when the tensor is one block: only its ends are legal cuts.
    bool whole() const noexcept { return block_ == elements_; }
    // Equal shards of any multiple of this many elements may cut the tensor any number of times.
    std::int64_t period() const noexcept { return simple() ? block_ : sub_matrix_; }

    // floor() returns the last boundary at or before `position`, ceil() the first at or after it.
    // `position` is in [0, elements()].
    std::int64_t floor(std::int64_t position) const noexcept;
    std::int64_t ceil(std::int64_t position) const noexcept;

    // Return the largest or the smallest boundary in a range inside [0, elements()) that has the
    // residue. With `within`, the position of the boundary in its sub-matrix must lie in `within`.
    // Cost: O(modulus / gcd(modulus, sub-matrix)) steps; 1 for simple grids.
    std::optional<std::int64_t> largest(Range range, Residue residue, Range within) const noexcept;
    std::optional<std::int64_t> largest(Range range, Residue residue) const noexcept {
        return largest(range, residue, {0, sub_matrix_ - 1});
    }
    std::optional<std::int64_t> smallest(Range range, Residue residue) const noexcept;

private:
    std::int64_t tries_for(std::int64_t modulus) const noexcept;

    std::int64_t elements_;
    std::int64_t sub_matrix_;
    std::int64_t block_;
};

}  // namespace vescomm::planner
