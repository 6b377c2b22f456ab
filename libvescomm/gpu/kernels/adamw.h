// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/kernels/slabs.h"

namespace vescomm::internal::VESCOMM_ISA {
namespace {

// One AdamW step on pieces. Results have the bits of fsdp/adamw.h.
struct AdamWPieces {
    using Parameters = gpu_kernel::AdamW;
    using Shared = Nothing;
    static constexpr int phases = 1;

    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        vescomm_adamw_t step = p.step;
        if (p.clip != nullptr) {
            if (p.clip->skip != 0) return;
            step.gradient_scale = p.clip->factor;
        }
        const bool towards_new = !(step.blend < 0.5f);
        const float weight = towards_new ? step.blend - 1.0f : step.blend;
        const Tile tile = tile_of(p.slabs, block);
        float *const to = static_cast<float *>(p.slabs.target) + tile.target;
        float *const means = p.m + tile.target, *const squares = p.v + tile.target;
        const float *const from = static_cast<const float *>(p.slabs.source) + tile.source;
        constexpr int n = elements_of_run<float>;
        using Floats = Run<float, n>;
        for_runs<n>(to, tile.count, thread, [&](std::int64_t first, int count) {
            typename Floats::Vector parameter, gradient, m, v;
            Floats::load(&parameter, to + first, count);
            Floats::load(&gradient, from + first, count);
            Floats::load(&m, means + first, count);
            Floats::load(&v, squares + first, count);
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k)
                vescomm_adamw_element(towards_new, weight, parameter.at + k, gradient.at[k],
                                      m.at + k, v.at + k, &step);
            Floats::store(to + first, parameter, count);
            Floats::store(means + first, m, count);
            Floats::store(squares + first, v, count);
        });
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
