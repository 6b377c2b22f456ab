// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "execute/loops/vectorise.h"

// The formats of floating-point elements. widen() reads an element as a float (f64: as a double);
// narrow() rounds a float or a double to an element, and makes all NaNs the same. Both use integer
// arithmetic, which vectorises everywhere: F16C, for example, exists only from x86-64-v3 on.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

VESCOMM_INLINE float as_float(std::uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}

VESCOMM_INLINE std::uint32_t as_bits(float x) {
    return __builtin_bit_cast(std::uint32_t, x);
}

constexpr std::uint32_t infinity = 0x7f800000;
constexpr std::uint32_t quiet_nan = 0x7fc00000;

VESCOMM_INLINE float canonical(float x) {
    return x == x ? x : as_float(quiet_nan);
}

VESCOMM_INLINE double canonical(double x) {
    return x == x ? x : static_cast<double>(as_float(quiet_nan));
}

// Two roundings give a wrong result if the first one makes a tie. An inexact result whose last bit
// is 1 cannot be a tie of a format that is two bits shorter, and lies on the correct side of it.
// Source: S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
// using rounding to odd", IEEE Transactions on Computers 57(4), 2008.
VESCOMM_INLINE float round_to_odd(double x) {
    const auto nearest = static_cast<float>(x);
    const double difference = static_cast<double>(nearest) - x;
    const bool away = x < 0 ? difference < 0 : difference > 0;
    const std::uint32_t odd = (as_bits(nearest) - (away ? 1 : 0)) | 1;
    return static_cast<double>(nearest) == x ? nearest : as_float(odd);
}

struct F32 {
    using Storage = float;
    VESCOMM_INLINE float widen(float x) { return x; }
    VESCOMM_INLINE float narrow(float x) { return canonical(x); }
    VESCOMM_INLINE float narrow(double x) { return canonical(static_cast<float>(x)); }
};

struct F64 {
    using Storage = double;
    VESCOMM_INLINE double widen(double x) { return x; }
    VESCOMM_INLINE double narrow(double x) { return canonical(x); }
};

struct Bf16 {
    using Storage = std::uint16_t;
    VESCOMM_INLINE float widen(std::uint16_t x) {
        return as_float(static_cast<std::uint32_t>(x) << 16);
    }
    // Rounds to nearest even: adds just under half of the last kept bit, then that bit itself.
    VESCOMM_INLINE std::uint16_t narrow(float x) {
        const std::uint32_t bits = as_bits(x);
        const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        return static_cast<std::uint16_t>((bits & 0x7fffffff) > infinity ? 0x7fc0 : rounded);
    }
    VESCOMM_INLINE std::uint16_t narrow(double x) { return narrow(round_to_odd(x)); }
};

// 2^exponent
VESCOMM_INLINE constexpr std::uint32_t power_bits(int exponent) {
    return static_cast<std::uint32_t>(127 + exponent) << 23;
}

// Formats with fewer exponents than f32. `overflow`: the code for finite numbers that are too
// large, which is infinity, or NaN if the format has no infinity. Higher codes are NaNs.
// Source: F. Giesen, "Half to float done quick" and "Float to half done quick", 2012.
template <typename Code, int exponent_bits, int fraction_bits, std::uint32_t overflow,
          std::uint32_t nan>
struct SmallFloat {
    using Storage = Code;
    static constexpr int shift = 23 - fraction_bits;
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
    static constexpr int sign_bit = exponent_bits + fraction_bits;
    static constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - bias) << 23;
    static constexpr std::uint32_t min_normal = 1u << fraction_bits;
    static constexpr bool has_infinity = overflow != nan;

    VESCOMM_INLINE float widen(Code x) {
        const std::uint32_t code = x & ((1u << sign_bit) - 1);
        const std::uint32_t normal = (code << shift) + rebias;
        // Reads a subnormal as 2^(1 - bias) * (1 + fraction), then subtracts the excess.
        const float excess = as_float(power_bits(1 - bias));
        const std::uint32_t subnormal = as_bits(as_float(normal + (1 << 23)) - excess);
        // Infinities and NaNs have the largest exponent in both formats.
        const std::uint32_t special = has_infinity ? normal + rebias : quiet_nan;
        const std::uint32_t magnitude = code >= overflow     ? special
                                        : code >= min_normal ? normal
                                                             : subnormal;
        return as_float(magnitude | static_cast<std::uint32_t>(x >> sign_bit) << 31);
    }

    VESCOMM_INLINE Code narrow(float x) {
        const std::uint32_t bits = as_bits(x);
        const std::uint32_t magnitude = bits & 0x7fffffff;
        const std::uint32_t half = (1u << (shift - 1)) - 1;
        const std::uint32_t normal =
            (magnitude - rebias + half + (magnitude >> shift & 1)) >> shift;
        // The addition rounds: the last place of a float at `base` is that of a subnormal code.
        const std::uint32_t base = power_bits(1 - bias - fraction_bits + 23);
        const std::uint32_t subnormal = as_bits(as_float(magnitude) + as_float(base)) - base;
        const std::uint32_t code = magnitude >= (overflow << shift) + rebias ? overflow
                                   : magnitude < power_bits(1 - bias)        ? subnormal
                                                                             : normal;
        const bool is_nan = magnitude > infinity || (!has_infinity && code >= overflow);
        return static_cast<Code>(is_nan ? nan : code | bits >> 31 << sign_bit);
    }
    VESCOMM_INLINE Code narrow(double x) { return narrow(round_to_odd(x)); }
};

using F16 = SmallFloat<std::uint16_t, 5, 10, 0x7c00, 0x7e00>;
using F8e4m3 = SmallFloat<std::uint8_t, 4, 3, 0x7f, 0x7f>;
using F8e5m2 = SmallFloat<std::uint8_t, 5, 2, 0x7c, 0x7f>;

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
