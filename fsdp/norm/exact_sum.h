// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "vescomm/vescomm.h"

namespace vescomm::fsdp {

// The exact sum of squares of floats. No addition rounds, so the sum does not depend on the order
// of the elements, nor on the cuts between ranks: the global norm of gradients has the same bits
// for any number of ranks and any layout.
//
// The sum is a fixed-point number. Its unit is 2^min_exponent, below the square of the smallest
// subnormal f32 (2^-298). Word k of `digits` words counts units times 2^(32 k):
//
//     digit   0      1     ...    18     19
//     2^   -320   -288     ...   256    288        the largest square is below 2^256,
//                                                  so 2^63 elements cannot overflow
//
// Sums of several ranks are merged by adding their words, with an all_reduce of i64: normalised
// digits are below 2^32, so up to 2^31 ranks cannot overflow. Two more words count infinities and
// NaNs.
//
// Source: R. Neal, "Fast exact summation using small and large superaccumulators", 2015, for the
// digits; the loops that fill them are explained in exact_sum_loops.cc.
class ExactSum {
public:
    static constexpr int digits = 20;
    static constexpr int min_exponent = -320;
    static constexpr std::size_t word_count = digits + 2;

    // Adds the squares of `count` elements of type f32, bf16 or f16.
    // Cost: one pass, as fast as memory for arrays beyond the cache.
    void add_squares(const void *from, vescomm_type_t type, std::size_t count) noexcept;

    // Variant for tests that uses the instruction set isa_names[isa]; isa is below
    // supported_isas().
    void add_squares(const void *from, vescomm_type_t type, std::size_t count, int isa) noexcept;

    // Adds the sum of other elements. Both must be normalised.
    void merge(const ExactSum &other) noexcept;

    // Moves carries, so that all digits but the last are below 2^32. Equal sums then have equal
    // words. add_squares() and merge() leave the sum normalised. Call it after an all_reduce.
    void normalise() noexcept;

    // The state, for an all_reduce: word_count i64.
    std::span<std::int64_t, word_count> words() noexcept { return words_; }
    std::span<const std::int64_t, word_count> words() const noexcept { return words_; }

    // Number of elements that are infinite or NaN.
    std::int64_t infinities() const noexcept { return words_[digits]; }
    std::int64_t nans() const noexcept { return words_[digits + 1]; }
    bool finite() const noexcept { return infinities() == 0 && nans() == 0; }

    // Returns the sum, rounded to nearest, ties to even. It cannot overflow. NaN if an element is
    // NaN; otherwise infinity if an element is infinite. The sum must be normalised.
    double value() const noexcept;

private:
    std::array<std::int64_t, word_count> words_ = {};
};

}  // namespace vescomm::fsdp
