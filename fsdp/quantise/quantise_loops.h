// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "vescomm/vescomm.h"

namespace vescomm::fsdp {

// Type of the codes, and the scale of a block.
enum class CodeType {
    int8,  // scale = largest magnitude / 127, codes -127 to 127, rounded to nearest, ties to even
    f8e4m3,  // scale = largest magnitude / 448, the largest finite f8e4m3
};

// One rank's contribution to a sum.
struct QuantisedSource {
    const void *codes;
    const float *scales;
};

// The loops of block_quantise.h, compiled once for each instruction set.
#define VESCOMM_DECLARE_QUANTISE(isa)                                                              \
    namespace isa {                                                                                \
    void quantise(CodeType codes_type, const void *from, vescomm_type_t type, std::size_t count,   \
                  std::size_t block, void *codes, float *scales) noexcept;                         \
    void dequantise(CodeType codes_type, const void *codes, const float *scales,                   \
                    std::size_t count, std::size_t block, void *to, vescomm_type_t type) noexcept; \
    void sum_quantised(CodeType codes_type, const QuantisedSource *sources,                        \
                       std::size_t source_count, std::size_t count, std::size_t block,             \
                       float factor, float *to) noexcept;                                          \
    }

VESCOMM_DECLARE_QUANTISE(baseline)
#if defined(__x86_64__)
VESCOMM_DECLARE_QUANTISE(x86_64_v3)
VESCOMM_DECLARE_QUANTISE(x86_64_v4)
#endif

}  // namespace vescomm::fsdp
