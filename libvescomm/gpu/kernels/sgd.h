// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/sgd_element.h"
#include "gpu/kernels/optimizer.h"

// One step of stochastic gradient descent on pieces. Results have the bits of
// fsdp/optimizers/sgd.h.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

struct Sgd {
    using Parameters = gpu_kernel::Sgd;
    using Shared = Nothing;
    static constexpr int phases = 1;
    static constexpr int min_blocks = 1;

    template <typename Element, typename Round>
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread,
                            const Round &round) {
        SgdStep step = p.step;
        if (!clip_gradients(p.clip, &step.gradient_scale)) return;
        const Tile tile = tile_of(p.slabs, block);
        if (p.momentum == nullptr) run_tile<Element, false>(p, step, tile, thread, round);
        else run_tile<Element, true>(p, step, tile, thread, round);
    }

    template <typename Element, bool momentum, typename Round>
    VESCOMM_INLINE void run_tile(const Parameters &p, const SgdStep &step, const Tile &tile,
                                 unsigned thread, const Round &round) {
        using Storage = typename Element::Storage;
        Storage *const to = static_cast<Storage *>(p.slabs.target) + tile.target;
        float *const means = momentum ? p.momentum + tile.target : nullptr;
        const float *const from = static_cast<const float *>(p.slabs.source) + tile.source;
        constexpr int n = elements_of_step;
        using Stored = Run<Storage, n>;
        for_runs<n>(to, tile.count, thread, [&](std::int64_t first, int count) {
            typename Stored::Vector parameter;
            StepFloats wide, gradient, m;
            Stored::load(&parameter, to + first, count);
            FloatRun::load(&gradient, from + first, count);
            if constexpr (momentum) FloatRun::load(&m, means + first, count);
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k) {
                wide.at[k] = Element::widen(parameter.at[k]);
                if constexpr (momentum)
                    sgd_with_momentum(step.nesterov, wide.at + k, gradient.at[k], m.at + k, step);
                else sgd_without_momentum(wide.at + k, gradient.at[k], step);
            }
            Stored::store(to + first, round(wide, tile.target + first), count);
            if constexpr (momentum) FloatRun::store(means + first, m, count);
        });
    }
};

using SgdPieces = WideStep<Sgd>;
using NarrowSgdPieces = NarrowStep<Sgd>;

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
