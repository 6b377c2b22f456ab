// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/clip.h"
#include "execute/loops/exact_digits.h"
#include "gpu/kernels/slabs.h"

// Exact sums of squares, and the factor that clips gradients by their norm.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// The upper 32 bits of two words, the upper one first, that are shifted to the left by up to 31.
VESCOMM_INLINE std::uint32_t upper_of_shifted(std::uint32_t upper, std::uint32_t lower,
                                              std::uint32_t shift) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_l(lower, upper, shift);
#else
    return static_cast<std::uint32_t>(((std::uint64_t{upper} << 32 | lower) << shift) >> 32);
#endif
}

// Sums of squares in registers: four digits from `digit` on, without carries. A square has three
// digits. The window follows the largest squares; those below it go to the words one by one.
struct OpenDigits {
    static constexpr int count = 4;
    int digit = 0;
    std::int64_t sums[count] = {0, 0, 0, 0};

    VESCOMM_INLINE void flush(OpenDigits *open, std::int64_t *words) {
        VESCOMM_UNROLL
        for (int k = 0; k < count; ++k) {
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
        const std::uint32_t fraction =
            (magnitude & 0x7fffff) | (exponent != 0 ? std::uint32_t{1} << 23 : 0);
        // The last place of the float is 2^(exponent - 150); subnormals have exponent 1.
        const std::uint32_t place =
            2 * (exponent != 0 ? exponent : 1) + (-2 * 150 - exact_min_exponent);
        const int digit = static_cast<int>(place / 32);
        const std::uint32_t shift = place % 32;
        const std::uint64_t square = std::uint64_t{fraction} * fraction;
        const auto lower = static_cast<std::uint32_t>(square);
        const auto upper = static_cast<std::uint32_t>(square >> 32);
        const std::uint32_t first = lower << shift;
        const std::uint32_t second = upper_of_shifted(upper, lower, shift);
        const std::uint32_t third = upper_of_shifted(0, upper, shift);
        if (digit < open->digit) {
            atomic_add(words + digit, first);
            atomic_add(words + digit + 1, second);
            return atomic_add(words + digit + 2, third);
        }
        if (digit > open->digit + 1) {
            flush(open, words);
            open->digit = digit - 1;
        }
        const bool next = digit != open->digit;
        open->sums[0] += next ? 0 : first;
        open->sums[1] += next ? first : second;
        open->sums[2] += next ? second : third;
        open->sums[3] += next ? third : 0;
    }
};

// Each block adds its tile to words of its own, exactly, and these to the words of the sum: below
// 2^32 in each digit, so that 2^31 blocks cannot overflow. Threads give their digits to a few
// threads first, because atomic updates of one word by all threads would take longer than the sums.
struct AddSquares {
    static constexpr int summing_threads = 8;
    using Parameters = gpu_kernel::Squares;
    struct Shared {
        std::int64_t words[exact_words];
        std::int64_t sums[OpenDigits::count][gpu_kernel::threads];
        int digit[gpu_kernel::threads];
    };
    static constexpr int phases = 5;

    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        if (phase == 0 && thread < exact_words) shared.words[thread] = 0;
        if (phase == 1)
            with_float(p.slabs.target_type,
                       [&](auto element) { add(element, p, shared, block, thread); });
        if (phase == 2 && thread < summing_threads) add_threads(shared, thread);
        if (phase == 3 && thread == 0) normalise_digits(shared.words);
        if (phase == 4 && thread < exact_words && shared.words[thread] != 0)
            atomic_add(p.words + thread, shared.words[thread]);
    }

    // The square of an f64 is not one of the numbers that the digits hold.
    VESCOMM_INLINE void add(F64, const Parameters &, Shared &shared, unsigned, unsigned thread) {
        keep(OpenDigits{}, shared, thread);
    }
    template <typename Element>
    VESCOMM_INLINE void add(Element, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        using Storage = typename Element::Storage;
        constexpr int n = elements_of_run<Storage>;
        const Tile tile = tile_of(p.slabs, block);
        const Storage *const from = static_cast<const Storage *>(p.slabs.target) + tile.target;
        OpenDigits open;
        for_runs<n>(from, tile.count, thread, [&](std::int64_t first, int count) {
            typename Run<Storage, n>::Vector x;
            Run<Storage, n>::load(&x, from + first, count);
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k)
                OpenDigits::add(&open, shared.words, Element::widen(x.at[k]));
        });
        keep(open, shared, thread);
    }

    VESCOMM_INLINE void keep(const OpenDigits &open, Shared &shared, unsigned thread) {
        shared.digit[thread] = open.digit;
        VESCOMM_UNROLL
        for (int k = 0; k < OpenDigits::count; ++k) shared.sums[k][thread] = open.sums[k];
    }

    // Adds the digits of every eighth thread.
    VESCOMM_INLINE void add_threads(Shared &shared, unsigned thread) {
        OpenDigits open;
        open.digit = shared.digit[thread];
        for (unsigned of = thread; of < gpu_kernel::threads; of += summing_threads) {
            if (shared.digit[of] != open.digit) {
                OpenDigits::flush(&open, shared.words);
                open.digit = shared.digit[of];
            }
            VESCOMM_UNROLL
            for (int k = 0; k < OpenDigits::count; ++k) open.sums[k] += shared.sums[k][of];
        }
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
