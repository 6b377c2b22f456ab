// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fsdp/adamw.h"
#include "fsdp/optimizers/adam8bit_loops.h"

// AdamW whose moments have one byte for each element and one f32 scale for each block: 2.03 bytes
// an element instead of 8. Blocks are 256 consecutive elements of a parameter, counted from its
// first element; the last block may be short. A block is updated alone, so the parameters do not
// depend on cuts between ranks that keep blocks whole.
//
// A moment is scale * value(code), where the scale is the largest magnitude in the block. The 256
// values are those of the dynamic code books of bitsandbytes: 0, 1, and seven decades from 1e-7 to
// 1 with more values in each than in the one below. The first moment has a sign, the second has
// none.
//
//     decade below     1e-6   1e-5   1e-4   1e-3   1e-2   1e-1    1
//     first moment        1      2      4      8     16     32     64    values of each sign
//     second moment       2      4      8     16     32     64    128    values
//
// The step is that of adamw.h, and differs from bitsandbytes in two places: the weight decay comes
// first, and a second moment above 0 never becomes 0, which would make the next step too long.
//
// Source: T. Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022.
namespace vescomm::fsdp {

// Makes one AdamW step on n elements: parameters p and gradients g. The first element begins a
// block. A block with a gradient or moment that is not finite gets NaN as its scales, so the next
// step makes all its parameters NaN. The result has the same bits on every instruction set.
//
// The arrays must not overlap. g is not modified.
void adam8bit(float *p, const float *g, const Adam8bitState &state, std::size_t n,
              const AdamWStep &step) noexcept;

// The loops for one instruction set. encode() and decode() convert one block of at most
// adam8bit_block moments.
struct Adam8bitLoops {
    void (*step)(float *p, const float *g, const Adam8bitState &state, std::size_t n,
                 const vescomm_adamw &constants) noexcept;
    // Rounds to the nearest value. `negatives`: the code book of the first moment.
    void (*encode)(bool negatives, const float *moments, std::size_t n, std::uint8_t *codes,
                   float *scale) noexcept;
    void (*decode)(bool negatives, const std::uint8_t *codes, float scale, std::size_t n,
                   float *moments) noexcept;
};

// Returns those that this machine can run, in the order of isa_names.
std::span<const Adam8bitLoops> supported_adam8bit_loops() noexcept;

}  // namespace vescomm::fsdp
