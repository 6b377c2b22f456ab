// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fsdp/adamw_isa.h"

namespace vescomm::fsdp {

inline constexpr std::size_t adam8bit_block = 256;

// The moments of consecutive blocks. All zeros: no step was made yet.
struct Adam8bitState {
    std::uint8_t *first;  // code of each element
    std::uint8_t *second;
    float *first_scale;  // of each block
    float *second_scale;
};

// The loops of adam8bit.h, compiled once for each instruction set.
#define VESCOMM_DECLARE_ADAM8BIT(isa)                                                             \
    namespace isa {                                                                               \
    void adam8bit(float *p, const float *g, const Adam8bitState &state, std::size_t n,            \
                  const vescomm_adamw &constants) noexcept;                                       \
    void encode_moments(bool negatives, const float *moments, std::size_t n, std::uint8_t *codes, \
                        float *scale) noexcept;                                                   \
    void decode_moments(bool negatives, const std::uint8_t *codes, float scale, std::size_t n,    \
                        float *moments) noexcept;                                                 \
    }

VESCOMM_DECLARE_ADAM8BIT(baseline)
#if defined(__x86_64__)
VESCOMM_DECLARE_ADAM8BIT(x86_64_v3)
VESCOMM_DECLARE_ADAM8BIT(x86_64_v4)
#endif

}  // namespace vescomm::fsdp
