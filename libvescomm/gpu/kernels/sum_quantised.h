// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/kernels/quantise.h"

// Sums of quantised contributions. Results have the bits of fsdp/quantise/block_quantise.h.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

struct SumQuantised {
    using Parameters = gpu_kernel::SumQuantised;
    using Shared = Nothing;
    static constexpr int phases = 1;
    static constexpr int n = elements_of_run<float>;
    using Floats = typename Run<float, n>::Vector;

    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        if (p.code_type == VESCOMM_I8) run_code<Int8Code>(p, block, thread);
        else run_code<F8e4m3Code>(p, block, thread);
    }

    template <typename Code>
    VESCOMM_INLINE void run_code(const Parameters &p, unsigned block, unsigned thread) {
        const std::int64_t begin = std::int64_t{block} * gpu_kernel::tile_elements;
        const std::int64_t left = p.count - begin;
        const std::int64_t count =
            left < gpu_kernel::tile_elements ? left : gpu_kernel::tile_elements;
        float *const to = p.to + begin;
        // The first block of the tile, and the elements of it that are before the tile.
        const std::int64_t first_block = begin / p.block, before = begin % p.block;
        for_runs<n>(to, count, thread, [&](std::int64_t first, int elements) {
            const std::int64_t index = blocks_in(before + first, p.block);
            const std::int64_t end = (index + 1) * p.block - before;  // of the block of `first`
            Floats sums;
            if (end - first >= elements)
                sums = sum_run<Code>(p, begin + first, first_block + index, elements);
            else
                sums =
                    sum_blocks<Code>(p, begin + first, first_block + index, end - first, elements);
            finish(p, to + first, sums, elements);
        });
    }

    // The sums of a run within one block of codes.
    template <typename Code>
    VESCOMM_INLINE Floats sum_run(const Parameters &p, std::int64_t first, std::int64_t block,
                                  int elements) {
        const std::uint8_t *codes = p.codes + first;
        const float *scales = p.scales + block;
        Floats sums;
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) sums.at[k] = 0;
        for (std::int32_t source = 0; source < p.sources; ++source) {
            typename Run<std::uint8_t, n>::Vector x;
            Run<std::uint8_t, n>::load(&x, codes, elements);
            const float scale = *scales;
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k)
                sums.at[k] = sum(source, sums.at[k], value<Code>(x.at[k]), scale);
            codes += p.code_stride;
            scales += p.scale_stride;
        }
        return sums;
    }

    // The sums of a run in several blocks of codes, of which the first one has `left` elements of
    // it.
    template <typename Code>
    VESCOMM_INLINE Floats sum_blocks(const Parameters &p, std::int64_t first, std::int64_t block,
                                     std::int64_t left, int elements) {
        Floats sums;
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) {
            sums.at[k] = 0;
            if (k >= elements) continue;
            if (left == 0) {
                ++block;
                left = p.block;
            }
            --left;
            const std::uint8_t *code = p.codes + first + k;
            const float *scale = p.scales + block;
            for (std::int32_t source = 0; source < p.sources; ++source) {
                sums.at[k] = sum(source, sums.at[k], value<Code>(*code), *scale);
                code += p.code_stride;
                scale += p.scale_stride;
            }
        }
        return sums;
    }

    template <typename Code>
    VESCOMM_INLINE float value(std::uint8_t code) {
        return decode_value<Code>(static_cast<typename Code::Storage>(code));
    }
    // The first term is not added to 0: the sum of -0 and 0 is 0.
    VESCOMM_INLINE float sum(std::int32_t source, float so_far, float value, float scale) {
        return source == 0 ? value * scale : so_far + value * scale;
    }

    VESCOMM_INLINE void finish(const Parameters &p, float *to, Floats sums, int elements) {
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) sums.at[k] = canonical(sums.at[k] * p.factor);
        if (p.add != 0) {
            Floats old;
            Run<float, n>::load(&old, to, elements);
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k) sums.at[k] = canonical(old.at[k] + sums.at[k]);
        }
        Run<float, n>::store(to, sums, elements);
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
