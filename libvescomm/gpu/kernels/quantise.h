// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

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

// Code::decode(). GPUs convert few integers at a time: the last place of a float at 2^23 is 1.
template <typename Code>
VESCOMM_INLINE float decode_value(typename Code::Storage code) {
    if constexpr (std::is_same_v<Code, Int8Code>) {
        const std::uint32_t shifted = static_cast<std::uint8_t>(code) ^ 0x80u;  // code + 128
        return as_float(as_bits(0x1p23f) | shifted) - (0x1p23f + 128);
    } else {
        return Code::decode(code);
    }
}

// elements / block. A division of 64 bits takes a hundred instructions on a GPU.
VESCOMM_INLINE std::int64_t blocks_in(std::int64_t elements, std::int64_t block) {
    if (block > elements) return 0;
    if (elements > UINT32_MAX) return elements / block;
    return static_cast<std::uint32_t>(elements) / static_cast<std::uint32_t>(block);
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

    // Finds the block of an element of this block of threads, by a multiplication. Exact: with
    // several blocks there are at most tile_elements elements.
    struct Blocks {
        std::int64_t size;
        std::uint64_t inverse;  // 0: there is one block

        VESCOMM_INLINE Blocks of(const Parameters &p) {
            const bool one = p.block_count == 1;
            return {p.block, one ? 0 : UINT32_MAX / static_cast<std::uint32_t>(p.block) + 1ull};
        }
        VESCOMM_INLINE int index(const Blocks &blocks, std::int64_t element) {
            return static_cast<int>(static_cast<std::uint32_t>(element) * blocks.inverse >> 32);
        }
        // Elements from `element` on that are in this block, if they are fewer than a run has.
        VESCOMM_INLINE int left(const Blocks &blocks, int index, std::int64_t element) {
            const std::int64_t left = (index + 1) * blocks.size - element;
            return left < gpu_kernel::access_bytes ? static_cast<int>(left)
                                                   : gpu_kernel::access_bytes;
        }
    };

    template <typename Element>
    VESCOMM_INLINE void find_max(const Parameters &p, Shared &shared,
                                 const typename Element::Storage *from, std::int64_t count,
                                 unsigned thread) {
        using Storage = typename Element::Storage;
        constexpr int n = elements_of_run<Storage>;
        const Blocks blocks = Blocks::of(p);
        int open = 0;  // block whose maximum is not in shared memory yet
        std::uint32_t max = 0;
        const auto move_to = [&](int index) {
            if (index == open) return;
            atomic_max(shared.max + open, max);
            open = index;
            max = 0;
        };
        const auto add = [&](Storage x) {
            const std::uint32_t magnitude = as_bits(Element::widen(x)) & 0x7fffffff;
            max = max > magnitude ? max : magnitude;
        };
        for_all_runs<n>(from, count, thread, [&](std::int64_t first, int elements) {
            typename Run<Storage, n>::Vector x;
            Run<Storage, n>::load(&x, from + first, elements);
            int index = Blocks::index(blocks, first), left = Blocks::left(blocks, index, first);
            move_to(index);
            if (left >= elements) {
                VESCOMM_UNROLL
                for (int k = 0; k < n; ++k) add(x.at[k]);  // zeros behind the elements
                return;
            }
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k) {
                if (k >= elements) break;
                if (k == left) {
                    move_to(++index);
                    left += Blocks::left(blocks, index, first + k);
                }
                add(x.at[k]);
            }
        });
        atomic_max(shared.max + open, max);
    }

    template <typename Code, typename Element>
    VESCOMM_INLINE void encode(const Parameters &p, const Shared &shared,
                               const typename Element::Storage *from, std::int64_t count,
                               std::uint8_t *codes, unsigned thread) {
        using Storage = typename Element::Storage;
        constexpr int n = elements_of_run<Storage>;
        const Blocks blocks = Blocks::of(p);
        for_all_runs<n>(codes, count, thread, [&](std::int64_t first, int elements) {
            typename Run<Storage, n>::Vector x;
            typename Run<std::uint8_t, n>::Vector y;
            Run<Storage, n>::load(&x, from + first, elements);
            int index = Blocks::index(blocks, first), left = Blocks::left(blocks, index, first);
            Factors factors = shared.factors[index];
            float values[n];
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k) {
                if (left < elements && k == left && k < elements) {
                    factors = shared.factors[++index];
                    left += Blocks::left(blocks, index, first + k);
                }
                values[k] =
                    factors.zero ? 0 : Element::widen(x.at[k]) * factors.shift * factors.reciprocal;
            }
            encode_values<Code, n>(values, y.at);
            Run<std::uint8_t, n>::store(codes + first, y, elements);
        });
    }

    template <typename Code, int n>
    VESCOMM_INLINE void encode_values(const float (&values)[n], std::uint8_t (&codes)[n]) {
        VESCOMM_UNROLL
        for (int k = 0; k < n; k += 2) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
            // Values are at most 448: nothing saturates, and the instruction rounds as encode().
            if constexpr (std::is_same_v<Code, F8e4m3Code>) {
                std::uint16_t pair;
                asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
                    : "=h"(pair)
                    : "f"(values[k + 1]), "f"(values[k]));
                codes[k] = static_cast<std::uint8_t>(pair);
                codes[k + 1] = static_cast<std::uint8_t>(pair >> 8);
                continue;
            }
#endif
            codes[k] = static_cast<std::uint8_t>(Code::encode(values[k]));
            codes[k + 1] = static_cast<std::uint8_t>(Code::encode(values[k + 1]));
        }
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
            using Storage = typename Element::Storage;
            constexpr int n = elements_of_run<Storage>;
            const std::int64_t begin = std::int64_t{block} * gpu_kernel::tile_elements;
            const std::int64_t left = p.count - begin;
            const auto to = static_cast<Storage *>(p.to) + begin;
            const std::int64_t count =
                left < gpu_kernel::tile_elements ? left : gpu_kernel::tile_elements;
            // The first block of the tile, and the elements of it that are before the tile.
            const std::int64_t first_block = begin / p.block, before = begin % p.block;
            struct Loaded {
                typename Run<std::uint8_t, n>::Vector codes;
                const float *scales;
                float scale;
                int left;  // elements of this block, if they are fewer than a run has
            };
            const auto load = [&](std::int64_t first, int elements) {
                Loaded x;
                Run<std::uint8_t, n>::load(&x.codes, p.codes + begin + first, elements);
                const std::int64_t index = blocks_in(before + first, p.block);
                const std::int64_t left = (index + 1) * p.block - before - first;
                x.left = left < n ? static_cast<int>(left) : n;
                x.scales = p.scales + first_block + index;
                x.scale = *x.scales;
                return x;
            };
            const auto store = [&](Loaded x, std::int64_t first, int elements) {
                typename Run<Storage, n>::Vector y;
                const auto value = [&](int k) {
                    const auto stored = static_cast<typename Code::Storage>(x.codes.at[k]);
                    return Element::narrow(decode_value<Code>(stored) * x.scale);
                };
                if (x.left >= elements) {
                    VESCOMM_UNROLL
                    for (int k = 0; k < n; ++k) y.at[k] = value(k);
                } else {
                    VESCOMM_UNROLL
                    for (int k = 0; k < n; ++k) {
                        if (k == x.left && k < elements) {
                            x.scale = *++x.scales;
                            x.left += p.block < n ? static_cast<int>(p.block) : n;
                        }
                        y.at[k] = value(k);
                    }
                }
                Run<Storage, n>::store(to + first, y, elements);
            };
            for_two_runs<n>(to, count, thread, load, store);
        });
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
