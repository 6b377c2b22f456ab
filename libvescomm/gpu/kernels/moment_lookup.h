// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/moment_codes.h"

// The codes of moment_codes.h with two reads of small tables instead of a comparison with each
// threshold, which would be half of the instructions of a step on a GPU. The loops of the host do
// not use it: reads at computed addresses do not vectorise on every instruction set.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// The words of a table are in different banks of shared memory, so the reads of a warp take one
// cycle. Segment 0 ends at thresholds[0].
struct MomentLookup {
    float thresholds[moment_segments];
    float slopes[moment_segments];  // first moments: divided by 2^segment
};

// The segment of a magnitude is its guess or the next one: guesses grow by one at every 3.2 powers
// of two, and thresholds are 3.3 powers of two apart.
VESCOMM_INLINE constexpr std::uint32_t moment_guess(std::uint32_t magnitude_bits) {
    constexpr auto zero = static_cast<std::int32_t>(power_bits(-23));
    const std::int32_t above = static_cast<std::int32_t>(magnitude_bits) - zero;
    return static_cast<std::uint32_t>(above > 0 ? above : 0) * 5 >> 27;
}

// The offset of decade s of MomentSegments is f * 4/9 * 2^s - (f - 1), and its last index
// f * 2^s - f, with f = lowest_fractions(). Segment 8, of the value 1, gets a slope with which the
// same offset leads to its index, from its threshold up to 1 with the errors of f32.
VESCOMM_INLINE constexpr MomentLookup make_moment_lookup(bool first) {
    const MomentSegments segments = make_moment_segments(first);
    constexpr int last = moment_segments - 1;
    const int f = lowest_fractions(first);
    MomentLookup made = {};
    float power = 1;
    for (int s = 0; s < last; ++s, power *= 2) {
        made.thresholds[s] = segments.thresholds[s];
        made.slopes[s] = segments.slopes[s] / (first ? power : 1);
    }
    made.thresholds[last] = 2;
    made.slopes[last] =
        static_cast<float>(segments.limits[last] + 0.5 - f * 4.0 / 9 * 256 + f - 1) /
        (first ? power : 1);
    return made;
}

// encode_moment() with a lookup.
template <bool first>
VESCOMM_INLINE std::uint32_t look_up_moment(const MomentLookup &lookup, float moment,
                                            const Factors &factors) {
    constexpr int f = lowest_fractions(first);
    constexpr auto offset = static_cast<float>(f * 4.0 / 9);
    const float magnitude = __builtin_fabsf(moment) * factors.shift * factors.reciprocal;
    std::uint32_t s = moment_guess(as_bits(magnitude));
    if (magnitude > lookup.thresholds[s]) ++s;
    const float product = magnitude * lookup.slopes[s];
    const std::uint32_t power = s << 23;  // added to the bits of a float: multiplies it by 2^s
    if constexpr (first) {
        // All is divided by 2^s, so that offsets and limits are constants.
        constexpr float limit = 1 - 0x1p-24f;
        const float sum = product + offset < limit ? product + offset : limit;
        const std::uint32_t sign = as_bits(moment) & 0x80000000;
        const auto index = static_cast<std::int32_t>(as_float((as_bits(sum) + power) | sign));
        const std::int32_t code = index + zero_moment;
        return static_cast<std::uint32_t>(code > 0 ? code : 0);
    } else {
        const float sum = product + (as_float(as_bits(offset) + power) - (f - 1));
        const std::int32_t limit = (f << s) - f;
        const auto index = static_cast<std::int32_t>(sum);
        const std::int32_t limited = index < limit ? index : limit;
        // At least 1 above 0; negative moments have negative bits.
        const auto moment_bits = static_cast<std::int32_t>(as_bits(moment));
        const std::int32_t least = moment_bits < 1 ? moment_bits : 1;
        return static_cast<std::uint32_t>(limited > least ? limited : least);
    }
}

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
