// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/clip.h"
#include "execute/loops/exact_digits.h"
#include "gpu/kernels/slabs.h"

// Exact sums of squares, and the factor that clips gradients by their norm.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Sums of squares of one magnitude, in registers: three digits from `digit` on, without carries.
struct OpenDigits {
    int digit = 0;
    std::int64_t sums[3] = {0, 0, 0};

    VESCOMM_INLINE void flush(OpenDigits *open, std::int64_t *words) {
        VESCOMM_UNROLL
        for (int k = 0; k < 3; ++k) {
            if (open->sums[k] != 0) atomic_add(words + open->digit + k, open->sums[k]);
            open->sums[k] = 0;
        }
    }

    // Adds the square of a float. It has 48 bits, and is a multiple of 2^exact_min_exponent.
    VESCOMM_INLINE void add(OpenDigits *open, std::int64_t *words, float x) {
        const std::uint32_t magnitude = as_bits(x) & 0x7fffffff;
        if (magnitude == 0) return;
        if (magnitude >= infinity)
            return atomic_add(words + exact_digits + (magnitude > infinity ? 1 : 0), 1);
        const std::uint32_t exponent = magnitude >> 23;
        const std::uint64_t fraction =
            (magnitude & 0x7fffff) | (exponent != 0 ? std::uint32_t{1} << 23 : 0);
        // The last place of the float is 2^(exponent - 150); subnormals have exponent 1.
        const int place =
            2 * (static_cast<int>(exponent != 0 ? exponent : 1) - 150) - exact_min_exponent;
        const int digit = place / 32, shift = place % 32;
        if (digit != open->digit) {
            flush(open, words);
            open->digit = digit;
        }
        const std::uint64_t square = fraction * fraction;
        const std::uint64_t lower = (square & 0xffffffff) << shift;
        const std::uint64_t upper = (square >> 32) << shift;
        open->sums[0] += static_cast<std::int64_t>(lower & 0xffffffff);
        open->sums[1] += static_cast<std::int64_t>((lower >> 32) + (upper & 0xffffffff));
        open->sums[2] += static_cast<std::int64_t>(upper >> 32);
    }
};

// Each block adds its tile to words of its own, exactly, and these to the words of the sum: below
// 2^32 in each digit, so that 2^31 blocks cannot overflow.
struct AddSquares {
    using Parameters = gpu_kernel::Squares;
    struct Shared {
        std::int64_t words[exact_words];
    };
    static constexpr int phases = 4;

    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        if (phase == 0 && thread < exact_words) shared.words[thread] = 0;
        if (phase == 1)
            with_float(p.slabs.target_type,
                       [&](auto element) { add(element, p, shared, block, thread); });
        if (phase == 2 && thread == 0) normalise_digits(shared.words);
        if (phase == 3 && thread < exact_words && shared.words[thread] != 0)
            atomic_add(p.words + thread, shared.words[thread]);
    }

    // The square of an f64 is not one of the numbers that the digits hold.
    VESCOMM_INLINE void add(F64, const Parameters &, Shared &, unsigned, unsigned) {}
    template <typename Element>
    VESCOMM_INLINE void add(Element, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        using Storage = typename Element::Storage;
        const Tile tile = tile_of(p.slabs, block);
        const Storage *const from = static_cast<const Storage *>(p.slabs.target) + tile.target;
        OpenDigits open;
        for_runs(tile.count, thread, [&](std::int64_t first, int count) {
            typename Run<Storage>::Vector x;
            Run<Storage>::load(&x, from + first, count);
            VESCOMM_UNROLL
            for (int k = 0; k < gpu_kernel::run_elements; ++k)
                OpenDigits::add(&open, shared.words, Element::widen(x.at[k]));
        });
        OpenDigits::flush(&open, shared.words);
    }
};

// One thread of one block.
struct ClipFactor {
    using Parameters = gpu_kernel::Clip;
    using Shared = Nothing;
    static constexpr int phases = 1;
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned, unsigned thread) {
        if (thread != 0) return;
        normalise_digits(p.words);
        const double scale = p.scale;
        const double norm = sqrt(value_of_digits(p.words)) * (scale < 0 ? -scale : scale);
        const double factor = scale * clip_factor(p.max_norm, norm);
        p.result->norm = norm;
        p.result->factor = static_cast<float>(factor);
        p.result->skip = representable(norm, scale, factor) ? 0 : 1;
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
