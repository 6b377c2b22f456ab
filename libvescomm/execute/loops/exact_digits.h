// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "execute/loops/vectorise.h"

// The digits of an exact sum of squares: fsdp/norm/exact_sum.h explains them. For that sum and for
// the kernels of gpu/kernels. All functions have internal linkage.
namespace vescomm::internal {
namespace {

constexpr int exact_digits = 20;
constexpr int exact_min_exponent = -320;
constexpr int exact_words = exact_digits + 2;  // and the numbers of infinities and NaNs

// Moves carries, so that all digits but the last are below 2^32.
VESCOMM_INLINE void normalise_digits(std::int64_t *words) {
    for (int k = 0; k + 1 < exact_digits; ++k) {
        words[k + 1] += words[k] >> 32;  // arithmetic: rounds down, so the digit is not negative
        words[k] &= 0xffffffff;
    }
}

// 2^exponent, exponent from -1022 to 1023.
VESCOMM_INLINE double power_of_two(int exponent) {
    return __builtin_bit_cast(double, static_cast<std::int64_t>(1023 + exponent) << 52);
}

// Digit k, zero below the first one.
VESCOMM_INLINE std::uint64_t digit_of(const std::int64_t *words, int k) {
    return k < 0 ? 0 : static_cast<std::uint64_t>(words[k]);
}

// Returns the sum of normalised digits, rounded to nearest, ties to even. NaN if an element is NaN;
// otherwise infinity if an element is infinite.
VESCOMM_INLINE double value_of_digits(const std::int64_t *words) {
    if (words[exact_digits + 1] > 0)
        return __builtin_bit_cast(double, std::int64_t{0x7ff8000000000000});
    if (words[exact_digits] > 0)
        return __builtin_bit_cast(double, std::int64_t{0x7ff0000000000000});
    int top = exact_digits - 1;
    while (top >= 0 && words[top] == 0) --top;
    if (top < 0) return 0;
    // 64 bits from the highest bit on, in the digits top, top - 1 and top - 2. All lower bits are
    // represented by the last of the 64, which is below the last bit of a double: rounding to odd,
    // see round_to_odd() in elements.h.
    int width = 1;  // of the top digit, at most 32
    while (digit_of(words, top) >> width != 0) ++width;
    std::uint64_t bits = digit_of(words, top) << (64 - width) | digit_of(words, top - 1)
                                                                    << (32 - width);
    bits |= digit_of(words, top - 2) >> width;
    bool lower = (digit_of(words, top - 2) & ((std::uint64_t{1} << width) - 1)) != 0;
    for (int k = 0; k < top - 2; ++k) lower = lower || words[k] != 0;
    if (lower) bits |= 1;
    // The exponent is between -384 and 321: the multiplication is exact.
    return static_cast<double>(bits) * power_of_two(exact_min_exponent + 32 * top + width - 64);
}

}  // namespace
}  // namespace vescomm::internal
