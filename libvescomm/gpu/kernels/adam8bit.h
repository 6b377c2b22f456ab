// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/moment_codes.h"
#include "gpu/kernels/optimizer.h"

// One AdamW step with moments in 8 bits on pieces. Results have the bits of
// fsdp/optimizers/adam8bit.h.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Memory of the device, from which each block of threads copies them to its own.
#if defined(__CUDACC__)
static __device__ const MomentValues moment_values[2] = {make_moment_values(true),
                                                         make_moment_values(false)};
#else
constexpr MomentValues moment_values[2] = {make_moment_values(true), make_moment_values(false)};
#endif

// A block of threads has several blocks of moments, one for each group of `lanes` threads. They
// follow one another in the launch, through all pieces, as their scales do.
struct Adam8bit {
    using Parameters = gpu_kernel::Adam8bit;
    static constexpr int size = gpu_kernel::moment_block;
    static constexpr int lanes = gpu_kernel::threads / gpu_kernel::moment_blocks;
    static constexpr int n = elements_of_step;
    static_assert(gpu_kernel::threads == sizeof(MomentValues) / sizeof(float));
    using Codes = Run<std::uint8_t, n>;

    struct Shared {
        StepFloats m[gpu_kernel::moment_blocks][size / n], v[gpu_kernel::moment_blocks][size / n];
        MomentValues values[2];
        // Largest magnitudes of the first and second moments, as bits of floats.
        std::uint32_t max[2][gpu_kernel::moment_blocks];
    };
    static constexpr int phases = 3;

    template <typename Element, typename Round>
    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread, const Round &round) {
        vescomm_adamw_t step = p.step;
        if (!clip_gradients(p.clip, &step.gradient_scale)) return;
        if (phase == 0) {
            for (int k = 0; k < 2; ++k) {
                shared.values[k].of[thread] = moment_values[k].of[thread];
                if (thread < gpu_kernel::moment_blocks) shared.max[k][thread] = 0;
            }
            return;
        }
        // The block of moments: its number in the launch, and in the block of threads.
        const unsigned own = thread / lanes, lane = thread % lanes;
        const unsigned number = block * gpu_kernel::moment_blocks + own;
        if (number >= p.slabs.first_tile[p.slabs.pieces]) return;
        const Tile tile = tile_of<size>(p.slabs, number);
        if (phase == 1) make_step<Element>(p, step, shared, tile, number, own, lane, round);
        if (phase == 2) {
            encode<true>(shared.m[own], shared.max[0][own], tile, lane, p.m + tile.target,
                         p.m_scales + number);
            encode<false>(shared.v[own], shared.max[1][own], tile, lane, p.v + tile.target,
                          p.v_scales + number);
        }
    }

    template <typename Element, typename Round>
    VESCOMM_INLINE void make_step(const Parameters &p, const vescomm_adamw_t &step, Shared &shared,
                                  const Tile &tile, unsigned number, unsigned own, unsigned lane,
                                  const Round &round) {
        using Storage = typename Element::Storage;
        using Stored = Run<Storage, n>;
        const bool towards_new = !(step.blend < 0.5f);
        const float weight = towards_new ? step.blend - 1.0f : step.blend;
        const float m_scale = p.m_scales[number], v_scale = p.v_scales[number];
        Storage *const to = static_cast<Storage *>(p.slabs.target) + tile.target;
        const float *const from = static_cast<const float *>(p.slabs.source) + tile.source;
        std::uint32_t m_max = 0, v_max = 0;
        for_lane(tile, lane, [&](int first, int count) {
            typename Stored::Vector parameter;
            StepFloats wide, gradient, m, v;
            typename Codes::Vector m_codes, v_codes;
            Stored::load(&parameter, to + first, count);
            FloatRun::load(&gradient, from + first, count);
            Codes::load(&m_codes, p.m + tile.target + first, count);
            Codes::load(&v_codes, p.v + tile.target + first, count);
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k) {
                wide.at[k] = Element::widen(parameter.at[k]);
                m.at[k] = decode_moment(shared.values[0], m_codes.at[k], m_scale);
                v.at[k] = decode_moment(shared.values[1], v_codes.at[k], v_scale);
                vescomm_adamw_element(towards_new, weight, wide.at + k, gradient.at[k], m.at + k,
                                      v.at + k, &step);
                if (k >= count) m.at[k] = v.at[k] = 0;
                m_max = larger(m_max, as_bits(m.at[k]) & 0x7fffffff);
                v_max = larger(v_max, as_bits(v.at[k]) & 0x7fffffff);
            }
            Stored::store(to + first, round(wide, tile.target + first), count);
            shared.m[own][first / n] = m;
            shared.v[own][first / n] = v;
        });
        atomic_max(shared.max[0] + own, m_max);
        atomic_max(shared.max[1] + own, v_max);
    }

    template <bool first_moment>
    VESCOMM_INLINE void encode(const StepFloats *moments, std::uint32_t max, const Tile &tile,
                               unsigned lane, std::uint8_t *codes, float *scale_of_block) {
        float scale = 0;
        const Factors factors = factors_of<MomentCode>(max, &scale);
        if (lane == 0) *scale_of_block = scale;
        for_lane(tile, lane, [&](int first, int count) {
            const StepFloats x = moments[first / n];
            typename Codes::Vector y;
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k)
                y.at[k] = factors.zero ? code_of_zero_moment<first_moment>
                                       : encode_moment<first_moment>(x.at[k], factors);
            Codes::store(codes + first, y, count);
        });
    }

    // Calls body(first, count) for the runs of a thread in a block of moments.
    template <typename Body>
    VESCOMM_INLINE void for_lane(const Tile &tile, unsigned lane, const Body &body) {
        const auto elements = static_cast<int>(tile.count);
        VESCOMM_UNROLL
        for (int k = 0; k < size; k += lanes * n) {
            const int first = k + static_cast<int>(lane) * n;
            if (first < elements) body(first, elements - first < n ? elements - first : n);
        }
    }

    VESCOMM_INLINE std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }
};

using Adam8bitPieces = WideStep<Adam8bit>;
using NarrowAdam8bitPieces = NarrowStep<Adam8bit>;

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
