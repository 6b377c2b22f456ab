// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/elements.h"

// Codes of one byte with one scale for each block of elements: the arithmetic of an element and of
// a block, for the loops of fsdp/quantise and for the kernels of gpu/kernels.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

struct Int8Code {
    using Storage = std::int8_t;
    static constexpr float max = 127;
    // Rounds to nearest even: the last place of a float at 1.5 * 2^23 is 1.
    VESCOMM_INLINE Storage encode(float x) {
        const std::uint32_t bits = as_bits(x + 0x1.8p23f) - as_bits(0x1.8p23f);
        return static_cast<Storage>(bits);
    }
    VESCOMM_INLINE float decode(Storage code) { return static_cast<float>(code); }
};

struct F8e4m3Code {
    using Storage = std::uint8_t;
    static constexpr float max = 448;
    VESCOMM_INLINE Storage encode(float x) { return F8e4m3::narrow(x); }
    VESCOMM_INLINE float decode(Storage code) { return F8e4m3::widen(code); }
};

// Largest magnitude / Code::max; the largest code times the scale is finite.
template <typename Code>
VESCOMM_INLINE float scale_of(float magnitude) {
    const float scale = magnitude / Code::max;
    const bool overflows = as_bits(scale * Code::max) >= infinity;
    return overflows ? as_float(as_bits(scale) - 1) : scale;
}

// Elements are multiplied by shift, and then by reciprocal: the reciprocal of a small magnitude
// alone would overflow.
struct Factors {
    float shift;
    float reciprocal;
    bool zero;  // all codes are 0
};

// Factors and scale of a block whose largest magnitude is `max`, as the bits of a float.
template <typename Code>
VESCOMM_INLINE Factors factors_of(std::uint32_t max, float *scale) {
    if (max == 0 || max >= infinity) {
        *scale = max == 0 ? 0 : as_float(quiet_nan);
        return {0, 0, true};
    }
    const float magnitude = as_float(max);
    *scale = scale_of<Code>(magnitude);
    const float shift = magnitude < 0x1p-64f ? 0x1p64f : 1.0f;
    return {shift, Code::max / (magnitude * shift), false};
}

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
