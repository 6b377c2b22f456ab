// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/clip.h"
#include "execute/loops/exact_digits.h"
#include "gpu/kernels/slabs.h"

// Exact sums of squares, and the factor that clips gradients by their norm.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// The upper 32 bits of two words, the upper one first, that are shifted to the left by shift % 32.
VESCOMM_INLINE std::uint32_t upper_of_shifted(std::uint32_t upper, std::uint32_t lower,
                                              std::uint32_t shift) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_l(lower, upper, shift);
#else
    return static_cast<std::uint32_t>(((std::uint64_t{upper} << 32 | lower) << shift % 32) >> 32);
#endif
}

// A sum of squares in registers: four digits from number `first` on, without carries out of them.
// The digits follow the largest squares. Smaller ones go to the words one by one.
struct OpenDigits {
    static constexpr int digits = 4;

    std::uint64_t lower = 0, upper = 0;  // two digits each
    int first = 0;

    VESCOMM_INLINE std::uint32_t digit(const OpenDigits &open, int k) {
        return static_cast<std::uint32_t>((k < 2 ? open.lower : open.upper) >> 32 * (k % 2));
    }
    VESCOMM_INLINE void flush(OpenDigits *open, std::int64_t *words) {
        VESCOMM_UNROLL
        for (int k = 0; k < digits; ++k)
            if (const std::uint32_t value = digit(*open, k))
                atomic_add(words + open->first + k, value);
        open->lower = open->upper = 0;
    }

    // Adds the square of a float. A thread adds at most tile_elements / threads of them: with up to
    // 48 + 63 bits each, they do not overflow.
    VESCOMM_INLINE void add(OpenDigits *open, std::int64_t *words, float x) {
        const std::uint32_t magnitude = as_bits(x) & 0x7fffffff;
        std::uint32_t place = place_of(*open, magnitude >> 23);
        const bool normal = magnitude - (1u << 23) < infinity - (1u << 23);
        if (!normal || place >= 64) {
            if (!follow(open, words, magnitude)) return;
            place = place_of(*open, magnitude >> 23);
        }
        const std::uint32_t fraction = (magnitude & 0x7fffff) | 1u << 23;
        const std::uint64_t square = std::uint64_t{fraction} * fraction;
        const auto low = static_cast<std::uint32_t>(square);
        const auto high = static_cast<std::uint32_t>(square >> 32);
        const std::uint32_t a = low << place % 32, b = upper_of_shifted(high, low, place),
                            c = upper_of_shifted(0, high, place);
        const bool next = place >= 32;
        const std::uint64_t lower = next ? std::uint64_t{a} << 32 : std::uint64_t{b} << 32 | a;
        const std::uint64_t upper = next ? std::uint64_t{c} << 32 | b : c;
        const std::uint64_t sum = open->lower + lower;
        open->upper += upper + (sum < lower ? 1 : 0);
        open->lower = sum;
    }

private:
    // The last place of a square in the open digits. That of a normal float is 2^(exponent - 150).
    VESCOMM_INLINE std::uint32_t place_of(const OpenDigits &open, std::uint32_t exponent) {
        return 2 * exponent + (-2 * 150 - exact_min_exponent) -
               32 * static_cast<std::uint32_t>(open.first);
    }

    // Moves the open digits to a square that is larger than those before it, and returns true.
    // Adds any other one that they cannot hold, of a zero, a subnormal, an infinity, a NaN or a
    // smaller float, to the words.
    VESCOMM_INLINE bool follow(OpenDigits *open, std::int64_t *words, std::uint32_t magnitude) {
        if (magnitude == 0) return false;
        if (magnitude >= infinity) {
            atomic_add(words + exact_digits + (magnitude > infinity ? 1 : 0), 1);
            return false;
        }
        // Subnormals have exponent 1.
        const bool subnormal = magnitude < 1u << 23;
        const std::uint32_t exponent = subnormal ? 1 : magnitude >> 23;
        const std::uint32_t place = 2 * exponent + (-2 * 150 - exact_min_exponent);
        const int digit = static_cast<int>(place / 32);
        if (digit > open->first + 1) {
            flush(open, words);
            open->first = digit - 1;
            return true;
        }
        const std::uint32_t fraction = subnormal ? magnitude : (magnitude & 0x7fffff) | 1u << 23;
        const std::uint64_t square = std::uint64_t{fraction} * fraction;
        const std::uint64_t low = (square & 0xffffffff) << place % 32;
        const std::uint64_t middle = ((square >> 32) << place % 32) + (low >> 32);
        atomic_add(words + digit, static_cast<std::int64_t>(low & 0xffffffff));
        atomic_add(words + digit + 1, static_cast<std::int64_t>(middle & 0xffffffff));
        atomic_add(words + digit + 2, static_cast<std::int64_t>(middle >> 32));
        return false;
    }
};

// Each block adds its tile to words of its own, exactly, and these to the words of the sum: below
// 2^33 in each digit, so that 2^30 blocks cannot overflow. Threads give their digits to a warp
// first, because atomic updates of one word by all threads would take longer than the sums.
struct AddSquares {
    static constexpr int summing_threads = 32;  // for each digit eight
    using Parameters = gpu_kernel::Squares;
    struct Shared {
        std::int64_t words[exact_words];
        std::uint32_t digits[OpenDigits::digits][gpu_kernel::threads];
        int first[gpu_kernel::threads];
    };
    static constexpr int phases = 4;

    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        if (phase == 0 && thread < exact_words) shared.words[thread] = 0;
        if (phase == 1)
            with_float(p.slabs.target_type,
                       [&](auto element) { add(element, p, shared, block, thread); });
        if (phase == 2 && thread < summing_threads) add_threads(shared, thread);
        if (phase == 3 && thread < exact_words) add_to_sum(p, shared, thread);
    }

    // The lower half of a digit, and the upper half of the one before.
    VESCOMM_INLINE void add_to_sum(const Parameters &p, const Shared &shared, unsigned word) {
        const std::int64_t *const words = shared.words;
        std::int64_t value = words[word];
        if (word + 1 < exact_digits) value &= 0xffffffff;
        if (word > 0 && word < exact_digits) value += words[word - 1] >> 32;
        if (value != 0) atomic_add(p.words + word, value);
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
        shared.first[thread] = open.first;
        VESCOMM_UNROLL
        for (int k = 0; k < OpenDigits::digits; ++k)
            shared.digits[k][thread] = OpenDigits::digit(open, k);
    }

    // Adds one digit of every eighth thread.
    VESCOMM_INLINE void add_threads(Shared &shared, unsigned thread) {
        constexpr unsigned step = summing_threads / OpenDigits::digits;
        const unsigned digit = thread / step;
        const std::uint32_t *const digits = shared.digits[digit];
        unsigned of = thread % step;
        int first = shared.first[of];
        std::int64_t sum = 0;
        VESCOMM_UNROLL
        for (; of < gpu_kernel::threads; of += step) {
            if (shared.first[of] != first) {
                if (sum != 0) atomic_add(shared.words + first + digit, sum);
                sum = 0;
                first = shared.first[of];
            }
            sum += digits[of];
        }
        if (sum != 0) atomic_add(shared.words + first + digit, sum);
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
