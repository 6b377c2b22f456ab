// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/kernels/optimizer.h"

// One AdamW step on pieces. Results have the bits of fsdp/adamw.h.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

struct AdamW {
    using Parameters = gpu_kernel::AdamW;
    using Shared = Nothing;
    static constexpr int phases = 1;
    static constexpr int min_blocks = 1;

    template <typename Element, typename Round>
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread,
                            const Round &round) {
        vescomm_adamw_t step = p.step;
        if (!clip_gradients(p.clip, &step.gradient_scale)) return;
        const bool towards_new = !(step.blend < 0.5f);
        const float weight = towards_new ? step.blend - 1.0f : step.blend;
        const Tile tile = tile_of(p.slabs, block);
        using Storage = typename Element::Storage;
        Storage *const to = static_cast<Storage *>(p.slabs.target) + tile.target;
        float *const means = p.m + tile.target, *const squares = p.v + tile.target;
        const float *const from = static_cast<const float *>(p.slabs.source) + tile.source;
        constexpr int n = elements_of_step;
        using Stored = Run<Storage, n>;
        for_runs<n>(to, tile.count, thread, [&](std::int64_t first, int count) {
            typename Stored::Vector parameter;
            StepFloats wide, gradient, m, v;
            Stored::load(&parameter, to + first, count);
            FloatRun::load(&gradient, from + first, count);
            FloatRun::load(&m, means + first, count);
            FloatRun::load(&v, squares + first, count);
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k) {
                wide.at[k] = Element::widen(parameter.at[k]);
                vescomm_adamw_element(towards_new, weight, wide.at + k, gradient.at[k], m.at + k,
                                      v.at + k, &step);
            }
            Stored::store(to + first, round(wide, tile.target + first), count);
            FloatRun::store(means + first, m, count);
            FloatRun::store(squares + first, v, count);
        });
    }
};

using AdamWPieces = WideStep<AdamW>;
using NarrowAdamWPieces = NarrowStep<AdamW>;

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
