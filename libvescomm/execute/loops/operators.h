// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "execute/loops/elements.h"

// Operators on two accumulators.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Sums and products of integers wrap. They are computed unsigned and in at least 32 bits: C++
// promotes two u16 to a signed int, which must not overflow.
template <typename T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

struct Sum {
    static constexpr bool ordered = false;  // true: the sign of integers matters
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

// Minimum and maximum of IEEE 754-2019: NaN if either operand is NaN, and -0 < +0. Processors
// compute `a < b ? a : b` in one instruction, which gives b if neither is less. The instruction is
// applied twice, the second time with swapped operands. The two results are equal; or they are the
// two zeros; or, if one operand is NaN, they are the two operands. `or` of two zeros keeps the
// minus sign, `and` drops it. `or` of a NaN with any bits is a NaN.
template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <typename T>
VESCOMM_INLINE BitsOf<T> bits_of(T x) {
    return __builtin_bit_cast(BitsOf<T>, x);
}

template <typename T>
VESCOMM_INLINE bool is_unordered(T a, T b) {
#if defined(__CUDACC__)
    return a != a || b != b;
#else
    return __builtin_isunordered(a, b);
#endif
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
            const BitsOf<T> nan = is_unordered(a, b) ? ~BitsOf<T>{0} : 0;
            return __builtin_bit_cast(T, (bits_of(x) & bits_of(b > a ? b : a)) | nan);
        }
    }
};

struct Bitwise {
    static constexpr bool ordered = false;
};

struct And : Bitwise {
    template <typename T>
    VESCOMM_INLINE T apply(T a, T b) {
        return static_cast<T>(a & b);
    }
};

struct Or : Bitwise {
    template <typename T>
    VESCOMM_INLINE T apply(T a, T b) {
        return static_cast<T>(a | b);
    }
};

struct Xor : Bitwise {
    template <typename T>
    VESCOMM_INLINE T apply(T a, T b) {
        return static_cast<T>(a ^ b);
    }
};

// A bitwise operator on truth values. Every operand becomes 0 or 1 first, also a single one.
template <typename Bits>
struct Logical : Bits {};

template <typename Op>
constexpr bool is_logical = false;
template <typename Bits>
constexpr bool is_logical<Logical<Bits>> = true;

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
