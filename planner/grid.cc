// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; these are the inner loops of the planner.
#include "planner/grid.h"

#include <algorithm>
#include <utility>

namespace vescomm::planner {
namespace {

std::int64_t modulo(std::int64_t a, std::int64_t modulus) noexcept {
    const std::int64_t rest = a % modulus;
    return rest < 0 ? rest + modulus : rest;
}

// Returns x with a * x = 1 modulo `modulus`, for coprime a, by the extended Euclidean algorithm.
std::int64_t inverse(std::int64_t a, std::int64_t modulus) noexcept {
    std::int64_t rest = modulo(a, modulus);
    std::int64_t next_rest = modulus;
    std::int64_t factor = 1;
    std::int64_t next_factor = 0;
    while (next_rest != 0) {
        const std::int64_t quotient = rest / next_rest;
        rest = std::exchange(next_rest, rest - quotient * next_rest);
        factor = std::exchange(next_factor, factor - quotient * next_factor);
    }
    return modulo(factor, modulus);
}

// Returns all x with x * block in the residue class: again one class, with a smaller modulus. All
// products fit into 64 bits, because a modulus is an alignment, which is at most 2^30.
std::optional<Residue> divide(Residue residue, std::int64_t block) noexcept {
    const std::int64_t wanted = modulo(residue.residue, residue.modulus);
    if (block % residue.modulus == 0) {  // the usual case: blocks are aligned themselves
        if (wanted != 0) return std::nullopt;
        return Residue{0, 1};
    }
    const std::int64_t common = std::gcd(block, residue.modulus);
    if (wanted % common != 0) return std::nullopt;
    const std::int64_t modulus = residue.modulus / common;
    return Residue{wanted / common * inverse(block / common, modulus) % modulus, modulus};
}

}  // namespace

Grid::Grid(std::int64_t elements, std::int64_t sub_matrix, std::int64_t block) noexcept
    : elements_(elements), sub_matrix_(sub_matrix), block_(std::min(block, sub_matrix)) {
    if (sub_matrix_ % block_ == 0) sub_matrix_ = elements_;
}

// Returns the number of sub-matrices after which residues repeat, plus one because the first
// sub-matrix may be only partly in the range.
std::int64_t Grid::tries_for(std::int64_t modulus) const noexcept {
    return simple() ? 1 : modulus / std::gcd(modulus, sub_matrix_) + 1;
}

std::int64_t Grid::floor(std::int64_t position) const noexcept {
    if (position == elements_) return position;
    const std::int64_t within = simple() ? position : position % sub_matrix_;
    return position - within % block_;
}

std::int64_t Grid::ceil(std::int64_t position) const noexcept {
    const std::int64_t below = floor(position);
    if (below == position) return position;
    const std::int64_t start = simple() ? 0 : round_down(position, sub_matrix_);
    return sub_matrix_ - (below - start) > block_ ? below + block_ : start + sub_matrix_;
}

std::optional<std::int64_t> Grid::largest(Range range, Residue residue,
                                          Range within) const noexcept {
    if (range.low > range.high || within.low > within.high) return std::nullopt;
    const std::int64_t first = simple() ? 0 : range.low / sub_matrix_;
    std::int64_t matrix = simple() ? 0 : range.high / sub_matrix_;
    const std::int64_t tries = tries_for(residue.modulus);
    for (std::int64_t i = 0; i < tries && matrix >= first; ++i, --matrix) {
        const std::int64_t start = matrix * sub_matrix_;
        const auto blocks =
            divide({residue.residue - start % residue.modulus, residue.modulus}, block_);
        if (!blocks) continue;
        const std::int64_t low = std::max({range.low - start, within.low, std::int64_t{0}});
        const std::int64_t high = std::min({range.high - start, within.high, sub_matrix_ - 1});
        if (low > high) continue;
        const std::int64_t last = high / block_;
        const std::int64_t block = last - modulo(last - blocks->residue, blocks->modulus);
        if (block >= 0 && block * block_ >= low) return start + block * block_;
    }
    return std::nullopt;
}

std::optional<std::int64_t> Grid::smallest(Range range, Residue residue) const noexcept {
    if (range.low > range.high) return std::nullopt;
    std::int64_t matrix = simple() ? 0 : range.low / sub_matrix_;
    const std::int64_t last = simple() ? 0 : range.high / sub_matrix_;
    const std::int64_t tries = tries_for(residue.modulus);
    for (std::int64_t i = 0; i < tries && matrix <= last; ++i, ++matrix) {
        const std::int64_t start = matrix * sub_matrix_;
        const auto blocks =
            divide({residue.residue - start % residue.modulus, residue.modulus}, block_);
        if (!blocks) continue;
        const std::int64_t low = std::max(range.low - start, std::int64_t{0});
        const std::int64_t high = std::min(range.high - start, sub_matrix_ - 1);
        const std::int64_t first = divide_up(low, block_);
        const std::int64_t block = first + modulo(blocks->residue - first, blocks->modulus);
        if (block <= high / block_) return start + block * block_;
    }
    return std::nullopt;
}

}  // namespace vescomm::planner
