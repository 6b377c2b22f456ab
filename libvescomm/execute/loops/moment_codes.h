// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/codes.h"

// Codes of one byte for the moments of AdamW, with one scale for each block of elements: the
// arithmetic of an element and of a block, for the loops of fsdp/optimizers and for the kernels of
// gpu/kernels. fsdp/optimizers/adam8bit.h describes the values of the codes.
//
// A value of a code book is the centre of a cell. The cells of a decade are equally wide, so within
// the decade the nearest value is that of the cell: a multiplication and a truncation find it. The
// thresholds between decades are the means of the two values beside them.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

constexpr int moment_decades = 7;
constexpr int moment_segments = moment_decades + 2;  // 0, the decades, 1
constexpr int zero_moment = 127;  // code of the first moment; negative values have lower codes

// Values of the lowest decade of a code book. Each other decade has twice the number of the one
// below.
VESCOMM_INLINE constexpr int lowest_fractions(bool first) {
    return first ? 1 : 2;
}

// The index of the nearest value to a magnitude from 0 to 1, in the ascending list of all values.
struct MomentSegments {
    float thresholds[moment_segments - 1];  // segment s has the magnitudes above thresholds[s - 1]
    float slopes[moment_segments];  // the index of x is the integer part of slope * x + offset,
    float offsets[moment_segments];
    std::int32_t limits[moment_segments];  // and at most this
};

// A decade of a code book.
struct MomentDecade {
    double bottom, cell;
    int index, count;  // of its values

    VESCOMM_INLINE constexpr double value(const MomentDecade &of, int k) {
        return of.bottom + (k + 0.5) * of.cell;
    }
};

VESCOMM_INLINE constexpr MomentDecade moment_decade(bool first, int decade) {
    double top = decade == 0 ? 1e-6 : 1;
    // 10 * the top of the decade below, without the error of 1e-6
    if (decade > 0)
        for (int power = decade; power < moment_decades - 1; ++power) top /= 10;
    int index = 1, count = lowest_fractions(first);
    for (int below = 0; below < decade; ++below) {
        index += count;
        count *= 2;
    }
    return {0.1 * top, 0.9 * top / count, index, count};
}

VESCOMM_INLINE constexpr MomentSegments make_moment_segments(bool first) {
    MomentSegments made = {};
    double below = 0;
    int index = 1;
    for (int k = 0; k < moment_decades; ++k) {
        const MomentDecade decade = moment_decade(first, k);
        made.thresholds[k] = static_cast<float>((below + decade.bottom + decade.cell / 2) / 2);
        made.slopes[k + 1] = static_cast<float>(1 / decade.cell);
        made.offsets[k + 1] = static_cast<float>(decade.index - decade.bottom / decade.cell);
        made.limits[k + 1] = decade.index + decade.count - 1;
        below = decade.bottom + (decade.count - 0.5) * decade.cell;
        index = decade.index + decade.count;
    }
    made.thresholds[moment_decades] = static_cast<float>((below + 1) / 2);
    made.offsets[moment_segments - 1] = static_cast<float>(index);
    made.limits[moment_segments - 1] = index;
    return made;
}

// The values of the codes.
struct MomentValues {
    float of[256];
};

VESCOMM_INLINE constexpr MomentValues make_moment_values(bool first) {
    float magnitudes[256] = {};  // ascending
    int index = 1;
    for (int k = 0; k < moment_decades; ++k) {
        const MomentDecade decade = moment_decade(first, k);
        for (int j = 0; j < decade.count; ++j)
            magnitudes[index++] = static_cast<float>(MomentDecade::value(decade, j));
    }
    magnitudes[index] = 1;
    MomentValues values = {};
    for (int code = 0; code < 256; ++code) {
        const int of_first = code < zero_moment ? zero_moment - code : code - zero_moment;
        const float magnitude = magnitudes[first ? of_first : code];
        values.of[code] = first && code < zero_moment ? -magnitude : magnitude;
    }
    return values;
}

// The scale is the largest magnitude: see factors_of().
struct MomentCode {
    static constexpr float max = 1;
};

// Index of the nearest value to a magnitude from 0 to 1.
template <bool first>
VESCOMM_INLINE std::int32_t moment_index(float magnitude) {
    constexpr MomentSegments segments = make_moment_segments(first);
    float slope = 0, offset = 0;
    std::int32_t limit = 0;
    for (int s = 1; s < moment_segments; ++s) {
        const bool above = magnitude > segments.thresholds[s - 1];
        slope = above ? segments.slopes[s] : slope;
        offset = above ? segments.offsets[s] : offset;
        limit = above ? segments.limits[s] : limit;
    }
    const auto index = static_cast<std::int32_t>(magnitude * slope + offset);
    return index < limit ? index : limit;
}

// Code of a moment of a block whose moments are finite and not all 0.
template <bool first>
VESCOMM_INLINE std::uint8_t encode_moment(float moment, const Factors &factors) {
    const float magnitude =
        as_float(as_bits(moment) & 0x7fffffff) * factors.shift * factors.reciprocal;
    const std::int32_t index = moment_index<first>(magnitude);
    if constexpr (first) {
        const std::int32_t lower = zero_moment - (index < zero_moment ? index : zero_moment);
        return static_cast<std::uint8_t>(moment < 0 ? lower : zero_moment + index);
    } else {
        return static_cast<std::uint8_t>(index == 0 && moment > 0 ? 1 : index);
    }
}

// Code of the moments of any other block.
template <bool first>
constexpr std::uint8_t code_of_zero_moment = first ? zero_moment : 0;

// Any byte is a code, and any float a scale.
VESCOMM_INLINE float decode_moment(const MomentValues &values, std::uint8_t code, float scale) {
    return canonical(values.of[code] * scale);
}

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
