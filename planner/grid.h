// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "planner/arithmetic.h"

namespace vescomm::planner {

// Numbers that leave `residue` when divided by `modulus`.
struct Residue {
    std::int64_t residue = 0;
    std::int64_t modulus = 1;
};

// Elements [low, high], both included; empty when low > high.
struct Range {
    std::int64_t low = 0;
    std::int64_t high = 0;
};

// Where one tensor may be cut, counted in elements from its start. Blocks start anew in every
// sub-matrix, and the last one of a sub-matrix may be short:
//
//     elements    |  sub-matrix 0    |  sub-matrix 1    |
//     boundaries  0     b     2b     s     s+b   s+2b   2s
//
// When blocks divide sub-matrices the boundaries are just the multiples of a block; the constructor
// then forgets the sub-matrices, so that `simple()` is the common case.
class Grid {
public:
    // `elements` at least 1, `sub_matrix` dividing it, `block` at least 1.
    Grid(std::int64_t elements, std::int64_t sub_matrix, std::int64_t block) noexcept;

    std::int64_t elements() const noexcept { return elements_; }
    std::int64_t sub_matrix() const noexcept { return sub_matrix_; }
    // Elements that stay together: of the largest block.
    std::int64_t block() const noexcept { return block_; }
    bool simple() const noexcept { return sub_matrix_ == elements_; }
    // One block: no cut is legal but at the ends.
    bool whole() const noexcept { return block_ == elements_; }
    // Shards of any multiple of this may cut the tensor again and again.
    std::int64_t period() const noexcept { return simple() ? block_ : sub_matrix_; }

    // The last boundary at or before `position`, the first at or after it; `position` in
    // [0, elements()].
    std::int64_t floor(std::int64_t position) const noexcept;
    std::int64_t ceil(std::int64_t position) const noexcept;

    // The largest, and the smallest, boundary within a range inside [0, elements()) that leaves
    // the residue and lies in `within`, counted from the start of its sub-matrix.
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
