// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fsdp/quantise/quantise_loops.h"
#include "vescomm/vescomm.h"

// Floats in one byte each, with one f32 scale for each block of consecutive elements:
//
//     elements  │ block 0             │ block 1             │ last block │      any count
//     codes     │ 1 byte each         │                     │            │
//     scales    │ f32                 │ f32                 │ f32        │
//
// A block is quantised alone, so the codes do not depend on cuts between ranks that keep blocks
// whole. The result for a block has the same bits on every instruction set.
namespace vescomm::fsdp {

// Number of scales of `count` elements in blocks of `block` elements.
constexpr std::size_t blocks_of(std::size_t count, std::size_t block) noexcept {
    return count / block + (count % block != 0 ? 1 : 0);
}

// Quantises `count` elements of type f32, bf16 or f16 in blocks of `block` elements, at least 1.
// Writes `count` codes and blocks_of(count, block) scales. An element x comes back as x', where m
// is the largest magnitude in the block:
//
//     int8     |x - x'| <= m / 254
//     f8e4m3   |x - x'| <= |x| / 16, or m / 458752 if that is more
//
// apart from the rounding of f32, a few units in the last place of m (at least 2^-140). A block of
// zeros has scale 0. A block with an infinity or a NaN has scale NaN and comes back as NaNs.
void quantise(CodeType codes_type, const void *from, vescomm_type_t type, std::size_t count,
              std::size_t block, void *codes, float *scales) noexcept;

// Writes code * scale for each element, as f32, bf16 or f16. Any bytes are valid codes and scales.
void dequantise(CodeType codes_type, const void *codes, const float *scales, std::size_t count,
                std::size_t block, void *to, vescomm_type_t type) noexcept;

// Sums quantised contributions, in this order and in f32:
//
//     to[i] = factor * (((codes[0][i] * scales[0][b]) + codes[1][i] * scales[1][b]) + ...)
//
// where b is the block of i. There must be at least one source. NaNs become the positive quiet NaN.
// Cost: one pass; every source is read once and `to` written once, for any number of sources.
void sum_quantised(CodeType codes_type, std::span<const QuantisedSource> sources, std::size_t count,
                   std::size_t block, float factor, float *to) noexcept;

// The same functions for one instruction set, for tests.
struct QuantiseLoops {
    decltype(&baseline::quantise) quantise;
    decltype(&baseline::dequantise) dequantise;
    decltype(&baseline::sum_quantised) sum;
};

// Returns those that this machine can run, in the order of isa_names.
std::span<const QuantiseLoops> supported_quantise_loops() noexcept;

}  // namespace vescomm::fsdp
