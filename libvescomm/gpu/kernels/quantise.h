// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/codes.h"
#include "gpu/kernels/slabs.h"

// Codes of one byte with a scale for each block of elements. Results have the bits of
// fsdp/quantise/block_quantise.h.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Calls body(Code{}, Element{}).
template <typename Body>
VESCOMM_INLINE void with_code(std::int32_t code_type, std::int32_t type, const Body &body) {
    const auto element = [&](auto code) {
        if (type == VESCOMM_F32) body(code, F32{});
        else if (type == VESCOMM_BF16) body(code, Bf16{});
        else body(code, F16{});
    };
    if (code_type == VESCOMM_I8) element(Int8Code{});
    else element(F8e4m3Code{});
}

// A block of threads has `block_count` whole blocks of elements; only the last one may be shorter.
struct QuantiseBlocks {
    using Parameters = gpu_kernel::Quantise;
    struct Shared {
        std::uint32_t max[gpu_kernel::max_code_blocks];  // largest magnitudes, as bits of floats
        Factors factors[gpu_kernel::max_code_blocks];
    };
    static constexpr int phases = 4;

    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        with_code(p.code_type, p.type, [&](auto code, auto element) {
            using Code = decltype(code);
            using Element = decltype(element);
            const std::int64_t begin = p.block * p.block_count * block;
            const std::int64_t left = p.count - begin;
            const std::int64_t all = p.block * p.block_count;
            const std::int64_t count = left < all ? left : all;
            const auto *from = static_cast<const typename Element::Storage *>(p.from) + begin;
            if (phase == 0)
                for (int k = static_cast<int>(thread); k < p.block_count; k += gpu_kernel::threads)
                    shared.max[k] = 0;
            if (phase == 1) find_max<Element>(p, shared, from, count, thread);
            if (phase == 2) {
                float *const scales = p.scales + std::int64_t{p.block_count} * block;
                for (int k = static_cast<int>(thread); k < p.block_count; k += gpu_kernel::threads)
                    if (k * p.block < count)
                        shared.factors[k] = factors_of<Code>(shared.max[k], scales + k);
            }
            if (phase == 3) encode<Code, Element>(p, shared, from, count, p.codes + begin, thread);
        });
    }

    // The block of an element of this block of threads.
    VESCOMM_INLINE int index_of(const Parameters &p, std::int64_t element) {
        if (p.block_count == 1) return 0;
        return static_cast<int>(static_cast<std::uint32_t>(element) /
                                static_cast<std::uint32_t>(p.block));
    }

    template <typename Element>
    VESCOMM_INLINE void find_max(const Parameters &p, Shared &shared,
                                 const typename Element::Storage *from, std::int64_t count,
                                 unsigned thread) {
        for_runs(count, thread, [&](std::int64_t first, int elements) {
            typename Run<typename Element::Storage>::Vector x;
            Run<typename Element::Storage>::load(&x, from + first, elements);
            int index = index_of(p, first);
            std::uint32_t max = 0;
            VESCOMM_UNROLL
            for (int k = 0; k < gpu_kernel::run_elements; ++k) {
                if (k >= elements) break;
                if (first + k == (index + 1) * p.block) {
                    atomic_max(shared.max + index, max);
                    ++index;
                    max = 0;
                }
                const std::uint32_t magnitude = as_bits(Element::widen(x.at[k])) & 0x7fffffff;
                max = max > magnitude ? max : magnitude;
            }
            atomic_max(shared.max + index, max);
        });
    }

    template <typename Code, typename Element>
    VESCOMM_INLINE void encode(const Parameters &p, const Shared &shared,
                               const typename Element::Storage *from, std::int64_t count,
                               std::uint8_t *codes, unsigned thread) {
        for_runs(count, thread, [&](std::int64_t first, int elements) {
            typename Run<typename Element::Storage>::Vector x;
            Run<std::uint8_t>::Vector y;
            Run<typename Element::Storage>::load(&x, from + first, elements);
            int index = index_of(p, first);
            VESCOMM_UNROLL
            for (int k = 0; k < gpu_kernel::run_elements; ++k) {
                if (k < elements && first + k == (index + 1) * p.block) ++index;
                const Factors factors = shared.factors[index];
                const float value =
                    factors.zero ? 0 : Element::widen(x.at[k]) * factors.shift * factors.reciprocal;
                y.at[k] = static_cast<std::uint8_t>(Code::encode(value));
            }
            Run<std::uint8_t>::store(codes + first, y, elements);
        });
    }
};

struct DequantiseBlocks {
    using Parameters = gpu_kernel::Dequantise;
    using Shared = Nothing;
    static constexpr int phases = 1;

    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        with_code(p.code_type, p.type, [&](auto code, auto element) {
            using Code = decltype(code);
            using Element = decltype(element);
            const std::int64_t begin = std::int64_t{block} * gpu_kernel::tile_elements;
            const std::int64_t left = p.count - begin;
            const auto to = static_cast<typename Element::Storage *>(p.to) + begin;
            const std::int64_t count =
                left < gpu_kernel::tile_elements ? left : gpu_kernel::tile_elements;
            for_runs(count, thread, [&](std::int64_t first, int elements) {
                Run<std::uint8_t>::Vector x;
                typename Run<typename Element::Storage>::Vector y;
                Run<std::uint8_t>::load(&x, p.codes + begin + first, elements);
                std::int64_t index = (begin + first) / p.block;
                std::int64_t next = (index + 1) * p.block - begin - first;  // of the next block
                float scale = p.scales[index];
                VESCOMM_UNROLL
                for (int k = 0; k < gpu_kernel::run_elements; ++k) {
                    if (k == next && k < elements) {
                        scale = p.scales[++index];
                        next += p.block;
                    }
                    const auto stored = static_cast<typename Code::Storage>(x.at[k]);
                    y.at[k] = Element::narrow(Code::decode(stored) * scale);
                }
                Run<typename Element::Storage>::store(to + first, y, elements);
            });
        });
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
