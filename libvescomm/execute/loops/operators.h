// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "execute/loops/elements.h"

// How two accumulators become one.
namespace vescomm::VESCOMM_ISA {
namespace {

// Sums and products of integers wrap. They are computed without a sign and in at least 32 bits:
// what C++ makes of two u16 is a signed int, which must not overflow.
template <typename T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), std::uint32_t, T>;

struct Sum {
    static constexpr bool ordered = false;  // does the sign of integers matter?
    template <typename T>
    VESCOMM_INLINE T apply(T a, T b) {
        if constexpr (std::is_floating_point_v<T>) return a + b;
        else return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b));
    }
};

struct Product {
    static constexpr bool ordered = false;
    template <typename T>
    VESCOMM_INLINE T apply(T a, T b) {
        if constexpr (std::is_floating_point_v<T>) return a * b;
        else return static_cast<T>(Wrapping<T>(a) * Wrapping<T>(b));
    }
};

// Minimum and maximum of IEEE 754-2019: NaN if either is, and -0 < +0. Processors have `a < b ? a :
// b` as one instruction, which gives b where neither is less. So with the operands swapped it gives
// the same number twice, or both zeros, or both of a NaN and what it was compared with. Of zeros,
// `or` keeps the minus sign and `and` drops it. What has all bits of a NaN is one.
template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <typename T>
VESCOMM_INLINE BitsOf<T> bits_of(T x) {
    return __builtin_bit_cast(BitsOf<T>, x);
}

struct Minimum {
    static constexpr bool ordered = true;
    template <typename T>
    VESCOMM_INLINE T apply(T a, T b) {
        const T x = a < b ? a : b;
        if constexpr (!std::is_floating_point_v<T>) return x;
        else return __builtin_bit_cast(T, bits_of(x) | bits_of(b < a ? b : a));
    }
};

struct Maximum {
    static constexpr bool ordered = true;
    template <typename T>
    VESCOMM_INLINE T apply(T a, T b) {
        const T x = a > b ? a : b;
        if constexpr (!std::is_floating_point_v<T>) return x;
        else {
            const BitsOf<T> nan = __builtin_isunordered(a, b) ? ~BitsOf<T>{0} : 0;
            return __builtin_bit_cast(T, (bits_of(x) & bits_of(b > a ? b : a)) | nan);
        }
    }
};

}  // namespace
}  // namespace vescomm::VESCOMM_ISA
