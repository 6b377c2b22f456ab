// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/clip.h"
#include "execute/loops/exact_digits.h"
#include "gpu/kernels/slabs.h"
#include "gpu/kernels/square_sums.h"

// Exact sums of squares, and the factor that clips gradients by their norm.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Each block adds its tile to words of its own, exactly, and these to the words of the sum: below
// 2^33 in each digit, so that 2^30 blocks cannot overflow. Threads give their digits to a warp
// first, because atomic updates of one word by all threads would take longer than the sums.
struct AddSquares {
    static constexpr int digits = OpenSum<WideSum>::digits;
    static constexpr int summing_threads = 32;  // for each digit eight
    using Parameters = gpu_kernel::Squares;
    struct Shared {
        SharedSum sum;
        std::uint32_t digits[AddSquares::digits][gpu_kernel::threads];
        int first[gpu_kernel::threads];
    };
    static constexpr int phases = 4;
    static constexpr int min_blocks = 8;  // with fewer, loads are late

    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        if (phase == 0 && thread < exact_words) clear(shared, thread);
        if (phase == 1)
            with_summed(p.slabs.target_type,
                        [&](auto element) { add(element, p, shared, block, thread); });
        if (phase == 2 && thread < summing_threads) add_threads(shared, thread);
        if (phase == 3 && thread < exact_words) add_to_sum(p, shared, static_cast<int>(thread));
    }

    VESCOMM_INLINE void clear(Shared &shared, unsigned word) {
        if (word < exact_digits) shared.sum.halves[0][word] = shared.sum.halves[1][word] = 0;
        else shared.sum.special[word - exact_digits] = 0;
    }

    // The lower half of a digit, and the upper half of the one before.
    VESCOMM_INLINE void add_to_sum(const Parameters &p, const Shared &shared, int word) {
        const auto all = [&](int k) { return SharedSum::word(shared.sum, k); };
        std::int64_t value = all(word);
        if (word + 1 < exact_digits) value &= 0xffffffff;
        if (word > 0 && word < exact_digits) value += all(word - 1) >> 32;
        if (value != 0) atomic_add(p.words + word, value);
    }

    // Calls body(Element{}) for the types that have exact sums.
    template <typename Body>
    VESCOMM_INLINE void with_summed(std::int32_t type, const Body &body) {
        if (type == VESCOMM_F32) body(F32{});
        else if (type == VESCOMM_BF16) body(Bf16{});
        else if (type == VESCOMM_F16) body(F16{});
    }

    template <typename Element>
    VESCOMM_INLINE void add(Element, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        using Storage = typename Element::Storage;
        constexpr int n = elements_of_run<Storage>;
        using Open = OpenSum<typename SumOf<Element>::Type>;
        const Tile tile = tile_of<gpu_kernel::summed_elements>(p.slabs, block);
        const Storage *const from = static_cast<const Storage *>(p.slabs.target) + tile.target;
        Open open;
        const auto load = [&](int first, int count, float(&x)[n]) {
            typename Run<Storage, n>::Vector loaded;
            Run<Storage, n>::load_aligned(&loaded, from + first, count);
            widen_run(Element{}, loaded, x);
        };
        const auto add_run = [&](int first, int count) {
            float x[n];
            load(first, count, x);
            auto sum = open.sum;
            if (Open::add(open, &sum, x)) open.sum = sum;
            else open = add_outside<Element>(open, shared.sum, from + first, count);
        };
        using Own = Runs<n>;
        const Own runs = Own::of(from, tile.count);
        const int run = static_cast<int>(thread) * n, count = runs.end - runs.before;
        int first = run - runs.before;
        if (Own::whole(runs, run)) {
            float x[n];
            load(first, n, x);
            open = Open::for_largest(Open::largest_of(x));
        } else {
            Own::call(runs, run, add_run);
            first += Own::step;
        }
        for (; first + n <= count; first += Own::step) add_run(first, n);
        if (first < count) add_run(first, count - first);
        keep(open, shared, thread);
    }

    template <typename Element, typename Vector, int n>
    VESCOMM_INLINE void widen_run(Element, const Vector &loaded, float (&x)[n]) {
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) x[k] = Element::widen(loaded.at[k]);
    }
    // By words of two elements, for which compilers make fewer instructions.
    template <typename Vector, int n>
    VESCOMM_INLINE void widen_run(Bf16, const Vector &loaded, float (&x)[n]) {
        std::uint32_t words[n / 2];
        __builtin_memcpy(words, &loaded, sizeof words);
        VESCOMM_UNROLL
        for (int k = 0; k < n / 2; ++k) {
            x[2 * k] = as_float(words[k] << 16);
            x[2 * k + 1] = as_float(words[k] & 0xffff0000);
        }
    }

    // Adds elements of which one is not in the range.
    template <typename Element, typename Open>
    VESCOMM_RARE Open add_outside(Open open, SharedSum &shared,
                                  const typename Element::Storage *from, int count) {
        float largest = 0;
        for (int k = 0; k < count; ++k)
            largest = Open::largest_of({largest, Element::widen(from[k])});
        if (Open::is_above(open, largest)) {
            Open::flush(open, shared);
            open = Open::for_largest(largest);
        }
        for (int k = 0; k < count; ++k) {
            const float x[1] = {Element::widen(from[k])};
            auto sum = open.sum;
            if (Open::add(open, &sum, x)) open.sum = sum;
            else SharedSum::add_square(shared, as_bits(x[0]) & 0x7fffffff);
        }
        return open;
    }

    template <typename Open>
    VESCOMM_INLINE void keep(const Open &open, Shared &shared, unsigned thread) {
        shared.first[thread] = Open::first(open);
        VESCOMM_UNROLL
        for (int k = 0; k < digits; ++k) shared.digits[k][thread] = Open::digit(open, k);
    }

    // Adds one digit of every eighth thread.
    VESCOMM_INLINE void add_threads(Shared &shared, unsigned thread) {
        constexpr unsigned step = summing_threads / digits;
        const unsigned digit = thread / step;
        const auto flush = [&](int first, std::uint64_t sum) {
            const int at = first + static_cast<int>(digit);
            SharedSum::add(shared.sum, at, static_cast<std::uint32_t>(sum));
            SharedSum::add(shared.sum, at + 1, static_cast<std::uint32_t>(sum >> 32));
        };
        unsigned of = thread % step;
        int first = shared.first[of];
        std::uint64_t sum = 0;
        for (; of < gpu_kernel::threads; of += step) {
            if (shared.first[of] != first) {
                flush(first, sum);
                sum = 0;
                first = shared.first[of];
            }
            sum += shared.digits[digit][of];
        }
        flush(first, sum);
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
