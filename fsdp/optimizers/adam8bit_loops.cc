// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops of adam8bit.h. Zone: per byte.
//
// A value of a code book is the centre of a cell. The cells of a decade are equally wide, so within
// the decade the nearest value is that of the cell: a multiplication and a truncation find it. The
// thresholds between decades are the means of the two values beside them.
#include "fsdp/optimizers/adam8bit_loops.h"

#include "execute/loops/elements.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

namespace vescomm::fsdp::VESCOMM_ISA {
namespace {

using namespace internal::VESCOMM_ISA;

constexpr int decades = 7;
constexpr int segments = decades + 2;  // 0, the decades, 1
constexpr int zero_code = 127;  // of the first moment; negative values have lower codes

// The code book of values from 0 to 1. The lowest decade has `fractions` values, each other decade
// twice the number of the one below.
struct Book {
    float values[256];  // ascending
    float thresholds[segments - 1];  // segment s has the magnitudes above thresholds[s - 1]
    float slopes[segments];  // the index of magnitude x is the integer part of slope * x + offset,
    float offsets[segments];
    std::int32_t limits[segments];  // and at most this
};

constexpr Book make_book(int fractions) {
    Book book = {};
    double top = 1e-6;
    int index = 1, count = fractions;
    double below = 0;
    for (int decade = 0; decade < decades; ++decade) {
        const double cell = 0.9 * top / count, bottom = 0.1 * top;
        book.thresholds[decade] = static_cast<float>((below + bottom + cell / 2) / 2);
        book.slopes[decade + 1] = static_cast<float>(1 / cell);
        book.offsets[decade + 1] = static_cast<float>(index - bottom / cell);
        book.limits[decade + 1] = index + count - 1;
        for (int k = 0; k < count; ++k)
            book.values[index++] = static_cast<float>(bottom + (k + 0.5) * cell);
        below = bottom + (count - 0.5) * cell;
        // 10 * top, without the error of 1e-6
        top = 1;
        for (int power = decade + 1; power < decades - 1; ++power) top /= 10;
        count *= 2;
    }
    book.thresholds[decades] = static_cast<float>((below + 1) / 2);
    book.offsets[segments - 1] = static_cast<float>(index);
    book.limits[segments - 1] = index;
    book.values[index] = 1;
    return book;
}

constexpr Book first_book = make_book(1);
constexpr Book second_book = make_book(2);

// The values of the codes.
struct Values {
    float of[256];
};

constexpr Values make_values(bool negatives) {
    Values values = {};
    for (int code = 0; code < 256; ++code) {
        const int index = code < zero_code ? zero_code - code : code - zero_code;
        const float magnitude = negatives ? first_book.values[index] : second_book.values[code];
        values.of[code] = negatives && code < zero_code ? -magnitude : magnitude;
    }
    return values;
}

constexpr Values first_values = make_values(true);
constexpr Values second_values = make_values(false);

// Index of the nearest value to a magnitude from 0 to 1.
VESCOMM_INLINE std::int32_t index_of(const Book &book, float magnitude) {
    float slope = 0, offset = 0;
    std::int32_t limit = 0;
    for (int s = 1; s < segments; ++s) {
        const bool above = magnitude > book.thresholds[s - 1];
        slope = above ? book.slopes[s] : slope;
        offset = above ? book.offsets[s] : offset;
        limit = above ? book.limits[s] : limit;
    }
    const auto index = static_cast<std::int32_t>(magnitude * slope + offset);
    return index < limit ? index : limit;
}

template <bool negatives>
VESCOMM_INLINE std::uint8_t code_of(float moment, float magnitude) {
    const std::int32_t index = index_of(negatives ? first_book : second_book, magnitude);
    if constexpr (negatives) {
        const std::int32_t lower = zero_code - (index < zero_code ? index : zero_code);
        return static_cast<std::uint8_t>(moment < 0 ? lower : zero_code + index);
    } else {
        return static_cast<std::uint8_t>(index == 0 && moment > 0 ? 1 : index);
    }
}

template <bool negatives>
VESCOMM_INLINE void encode(const float *__restrict__ moments, std::size_t n,
                           std::uint8_t *__restrict__ codes, float *scale) {
    std::uint32_t max = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t magnitude = as_bits(moments[i]) & 0x7fffffff;
        max = max > magnitude ? max : magnitude;
    }
    if (max == 0 || max >= infinity) {
        *scale = max == 0 ? 0 : as_float(quiet_nan);
        for (std::size_t i = 0; i < n; ++i) codes[i] = negatives ? zero_code : 0;
        return;
    }
    *scale = as_float(max);
    // The reciprocal of a small scale would overflow.
    const float shift = *scale < 0x1p-64f ? 0x1p64f : 1.0f;
    const float reciprocal = 1 / (*scale * shift);
    for (std::size_t i = 0; i < n; ++i) {
        const float magnitude = as_float(as_bits(moments[i]) & 0x7fffffff) * shift * reciprocal;
        codes[i] = code_of<negatives>(moments[i], magnitude);
    }
}

VESCOMM_INLINE void decode(const Values &values, const std::uint8_t *__restrict__ codes,
                           float scale, std::size_t n, float *__restrict__ moments) {
    for (std::size_t i = 0; i < n; ++i) moments[i] = canonical(values.of[codes[i]] * scale);
}

}  // namespace

void encode_moments(bool negatives, const float *moments, std::size_t n, std::uint8_t *codes,
                    float *scale) noexcept {
    if (negatives) {
        encode<true>(moments, n, codes, scale);
    } else {
        encode<false>(moments, n, codes, scale);
    }
}

void decode_moments(bool negatives, const std::uint8_t *codes, float scale, std::size_t n,
                    float *moments) noexcept {
    decode(negatives ? first_values : second_values, codes, scale, n, moments);
}

void adam8bit(float *p, const float *g, const Adam8bitState &state, std::size_t n,
              const vescomm_adamw &constants) noexcept {
    alignas(64) float first[adam8bit_block], second[adam8bit_block];
    for (std::size_t begin = 0, block = 0; begin < n; begin += adam8bit_block, ++block) {
        const std::size_t count = n - begin < adam8bit_block ? n - begin : adam8bit_block;
        std::uint8_t *const first_codes = state.first + begin;
        std::uint8_t *const second_codes = state.second + begin;
        decode(first_values, first_codes, state.first_scale[block], count, first);
        decode(second_values, second_codes, state.second_scale[block], count, second);
        PASTE(vescomm_adamw_, VESCOMM_ISA)(p + begin, g + begin, first, second, count, &constants);
        encode<true>(first, count, first_codes, state.first_scale + block);
        encode<false>(second, count, second_codes, state.second_scale + block);
    }
}

}  // namespace vescomm::fsdp::VESCOMM_ISA
