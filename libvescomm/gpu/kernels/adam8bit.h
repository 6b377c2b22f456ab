// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/kernels/moment_lookup.h"
#include "gpu/kernels/optimizer.h"

// One AdamW step with moments in 8 bits on pieces. Results have the bits of
// fsdp/optimizers/adam8bit.h.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// The tables of a code book. Each block of threads copies them from memory of the device.
struct MomentTables {
    MomentValues values;
    MomentLookup lookup;
};
#if defined(__CUDACC__)
static __device__
#endif
    const MomentTables moment_tables[2] = {{make_moment_values(true), make_moment_lookup(true)},
                                           {make_moment_values(false), make_moment_lookup(false)}};

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
        MomentTables tables[2];
        Tile tiles[gpu_kernel::moment_blocks];  // count 0: there is none
        // Largest magnitudes of the first and second moments, as bits of floats.
        std::uint32_t max[2][gpu_kernel::moment_blocks];
    };
    static constexpr int phases = 3;
    static constexpr int min_blocks = 4;  // 64 registers a thread; with 48, some are spilled

    template <typename Element, typename Round>
    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread, const Round &round) {
        vescomm_adamw_t step = p.step;
        if (phase == 0) {
            prepare(p, shared, block, thread, clip_gradients(p.clip, &step.gradient_scale));
            return;
        }
        // The block of moments: its number in the block of threads, and in the launch.
        const unsigned own = thread / lanes, lane = thread % lanes;
        const unsigned number = block * gpu_kernel::moment_blocks + own;
        const Tile tile = shared.tiles[own];
        if (tile.count == 0) return;
        if (phase == 1) clip_gradients(p.clip, &step.gradient_scale);
        Storage<Element> *const to = static_cast<Storage<Element> *>(p.slabs.target) + tile.target;
        const float *const from = static_cast<const float *>(p.slabs.source) + tile.source;
        const Moments m = {p.m + tile.target, p.m_scales + number, shared.m[own],
                           shared.max[0] + own};
        const Moments v = {p.v + tile.target, p.v_scales + number, shared.v[own],
                           shared.max[1] + own};
        const auto run_of = [&](const auto &runs) {
            if (phase == 1)
                make_step<Element>(step, shared.tables, to, from, m, v, runs,
                                   [&](const StepFloats &x, int first) -> decltype(auto) {
                                       return round(x, tile.target + first);
                                   });
            if (phase == 2) {
                encode<true>(shared.tables[0].lookup, m, runs);
                encode<false>(shared.tables[1].lookup, v, runs);
            }
        };
        if (tile.count == size && Run<Storage<Element>, n>::is_access(to, n) &&
            FloatRun::is_access(from, n) && Codes::is_access(m.codes, n) &&
            Codes::is_access(v.codes, n))
            run_of(LaneRuns<true>{lane, size});
        else run_of(LaneRuns<false>{lane, static_cast<int>(tile.count)});
    }

private:
    template <typename Element>
    using Storage = typename Element::Storage;

    // The first or second moments of a block.
    struct Moments {
        std::uint8_t *codes;
        float *scale;
        StepFloats *values;  // in memory of the block of threads, as `max`
        std::uint32_t *max;
    };

    // Each of the first threads finds a block of moments. `made`: the step is not skipped.
    VESCOMM_INLINE void prepare(const Parameters &p, Shared &shared, unsigned block,
                                unsigned thread, bool made) {
        for (int k = 0; k < 2; ++k) {
            const MomentTables &from = moment_tables[k];
            MomentTables &to = shared.tables[k];
            to.values.of[thread] = from.values.of[thread];
            if (thread < moment_segments) {
                to.lookup.thresholds[thread] = from.lookup.thresholds[thread];
                to.lookup.slopes[thread] = from.lookup.slopes[thread];
            }
        }
        if (thread >= gpu_kernel::moment_blocks) return;
        shared.max[0][thread] = shared.max[1][thread] = 0;
        const unsigned number = block * gpu_kernel::moment_blocks + thread;
        const bool exists = made && number < p.slabs.first_tile[p.slabs.pieces];
        shared.tiles[thread] = exists ? tile_of<size>(p.slabs, number) : Tile{};
    }

    // The runs of a thread in a block of moments. `whole`: all have n elements at aligned
    // addresses, as in nearly all blocks. Checks of each run would be a tenth of the instructions.
    template <bool whole>
    struct LaneRuns {
        unsigned lane;
        int elements;  // of the block

        // Calls body(first element, elements).
        template <typename Body>
        VESCOMM_INLINE void call(const LaneRuns &runs, const Body &body) {
            VESCOMM_NO_UNROLL
            for (int first = static_cast<int>(runs.lane) * n; first < runs.elements;
                 first += lanes * n)
                body(first, whole || runs.elements - first > n ? n : runs.elements - first);
        }
        template <typename T>
        VESCOMM_INLINE typename Run<T, n>::Vector load(const T *from, int count) {
            typename Run<T, n>::Vector loaded;
            if constexpr (whole) Run<T, n>::load_aligned(&loaded, from, n);
            else Run<T, n>::load(&loaded, from, count);
            return loaded;
        }
        template <typename T>
        VESCOMM_INLINE void store(T *to, const typename Run<T, n>::Vector &from, int count) {
            if constexpr (whole) Run<T, n>::store_aligned(to, from);
            else Run<T, n>::store(to, from, count);
        }
    };

    template <typename Element, typename Runs, typename Round>
    VESCOMM_INLINE void make_step(const vescomm_adamw_t &step, const MomentTables (&tables)[2],
                                  Storage<Element> *to, const float *from, const Moments &m,
                                  const Moments &v, const Runs &runs, const Round &round) {
        const bool towards_new = !(step.blend < 0.5f);
        const float weight = towards_new ? step.blend - 1.0f : step.blend;
        const float m_scale = *m.scale, v_scale = *v.scale;
        std::uint32_t m_max = 0, v_max = 0;
        Runs::call(runs, [&](int first, int count) {
            const auto parameter = Runs::load(to + first, count);
            const StepFloats gradient = Runs::load(from + first, count);
            const std::uint32_t m_codes = word_of(Runs::load(m.codes + first, count));
            const std::uint32_t v_codes = word_of(Runs::load(v.codes + first, count));
            StepFloats wide, new_m, new_v;
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k) {
                wide.at[k] = Element::widen(parameter.at[k]);
                // Without canonical NaNs, because they do not leave the kernel.
                float &one_m = new_m.at[k], &one_v = new_v.at[k];
                one_m = tables[0].values.of[m_codes >> (8 * k) & 0xff] * m_scale;
                one_v = tables[1].values.of[v_codes >> (8 * k) & 0xff] * v_scale;
                vescomm_adamw_moments(towards_new, weight, gradient.at[k], &one_m, &one_v, &step);
                wide.at[k] = vescomm_adamw_parameter(wide.at[k], one_m,
                                                     sqrtf(one_v) / step.root_correction, &step);
                if (k >= count) one_m = one_v = 0;
                m_max = larger(m_max, as_bits(one_m) & 0x7fffffff);
                v_max = larger(v_max, as_bits(one_v) & 0x7fffffff);
            }
            Runs::store(to + first, round(wide, first), count);
            m.values[first / n] = new_m;
            v.values[first / n] = new_v;
        });
        atomic_max(m.max, m_max);
        atomic_max(v.max, v_max);
    }

    template <bool first_moment, typename Runs>
    VESCOMM_INLINE void encode(const MomentLookup &lookup, const Moments &moments,
                               const Runs &runs) {
        float scale = 0;
        const Factors factors = factors_of<MomentCode>(*moments.max, &scale);
        if (runs.lane == 0) *moments.scale = scale;
        Runs::call(runs, [&](int first, int count) {
            std::uint32_t codes = code_of_zero_moment<first_moment> * 0x01010101u;
            if (!factors.zero) {
                const StepFloats x = moments.values[first / n];
                codes = 0;
                VESCOMM_UNROLL
                for (int k = 0; k < n; ++k)
                    codes |= look_up_moment<first_moment>(lookup, x.at[k], factors) << (8 * k);
            }
            Runs::store(moments.codes + first, __builtin_bit_cast(typename Codes::Vector, codes),
                        count);
        });
    }

    VESCOMM_INLINE std::uint32_t word_of(const typename Codes::Vector &codes) {
        return __builtin_bit_cast(std::uint32_t, codes);
    }
    VESCOMM_INLINE std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }
};

using Adam8bitPieces = WideStep<Adam8bit>;
using NarrowAdam8bitPieces = NarrowStep<Adam8bit>;

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
