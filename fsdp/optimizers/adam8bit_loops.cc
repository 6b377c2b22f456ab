// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops of adam8bit.h. Zone: per byte.
#include "fsdp/optimizers/adam8bit_loops.h"

#include "execute/loops/moment_codes.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

namespace vescomm::fsdp::VESCOMM_ISA {
namespace {

using namespace internal::VESCOMM_ISA;

constexpr MomentValues first_values = make_moment_values(true);
constexpr MomentValues second_values = make_moment_values(false);

template <bool negatives>
VESCOMM_INLINE void encode(const float *__restrict__ moments, std::size_t n,
                           std::uint8_t *__restrict__ codes, float *scale) {
    std::uint32_t max = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t magnitude = as_bits(moments[i]) & 0x7fffffff;
        max = max > magnitude ? max : magnitude;
    }
    const Factors factors = factors_of<MomentCode>(max, scale);
    if (factors.zero) {
        for (std::size_t i = 0; i < n; ++i) codes[i] = code_of_zero_moment<negatives>;
        return;
    }
    for (std::size_t i = 0; i < n; ++i) codes[i] = encode_moment<negatives>(moments[i], factors);
}

VESCOMM_INLINE void decode(const MomentValues &values, const std::uint8_t *__restrict__ codes,
                           float scale, std::size_t n, float *__restrict__ moments) {
    for (std::size_t i = 0; i < n; ++i) moments[i] = decode_moment(values, codes[i], scale);
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
