// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/random_bits.h"
#include "execute/loops/stochastic_rounding.h"
#include "gpu/kernels/slabs.h"

// One AdamW step on pieces. Results have the bits of fsdp/adamw.h, rounded to bf16 and f16 with the
// bits of execute/kernels.h or fsdp/optimizers/stochastic_rounding.h.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Steps the tile of a block. Parameters are stored as `Element`; round(x, number of the first
// element in the slab) rounds consecutive results in `x`.
template <typename Element, typename Round>
VESCOMM_INLINE void adamw_tile(const gpu_kernel::AdamW &p, unsigned block, unsigned thread,
                               const Round &round) {
    vescomm_adamw_t step = p.step;
    if (p.clip != nullptr) {
        if (p.clip->skip != 0) return;
        step.gradient_scale = p.clip->factor;
    }
    const bool towards_new = !(step.blend < 0.5f);
    const float weight = towards_new ? step.blend - 1.0f : step.blend;
    const Tile tile = tile_of(p.slabs, block);
    using Storage = typename Element::Storage;
    Storage *const to = static_cast<Storage *>(p.slabs.target) + tile.target;
    float *const means = p.m + tile.target, *const squares = p.v + tile.target;
    const float *const from = static_cast<const float *>(p.slabs.source) + tile.source;
    constexpr int n = elements_of_run<float>;
    using Floats = Run<float, n>;
    using Stored = Run<Storage, n>;
    for_runs<n>(to, tile.count, thread, [&](std::int64_t first, int count) {
        typename Stored::Vector parameter;
        typename Floats::Vector wide, gradient, m, v;
        Stored::load(&parameter, to + first, count);
        Floats::load(&gradient, from + first, count);
        Floats::load(&m, means + first, count);
        Floats::load(&v, squares + first, count);
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) {
            wide.at[k] = Element::widen(parameter.at[k]);
            vescomm_adamw_element(towards_new, weight, wide.at + k, gradient.at[k], m.at + k,
                                  v.at + k, &step);
        }
        Stored::store(to + first, round(wide, tile.target + first), count);
        Floats::store(means + first, m, count);
        Floats::store(squares + first, v, count);
    });
}

// Parameters in f32.
struct AdamWPieces {
    using Parameters = gpu_kernel::AdamW;
    using Shared = Nothing;
    static constexpr int phases = 1;

    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        using Floats = typename Run<float, elements_of_run<float>>::Vector;
        adamw_tile<F32>(p, block, thread,
                        [](const Floats &x, std::int64_t) -> const Floats & { return x; });
    }
};

// Parameters in bf16 or f16: another kernel, so that the one for f32 needs no more registers.
struct NarrowAdamWPieces {
    using Parameters = gpu_kernel::NarrowAdamW;
    using Shared = Nothing;
    static constexpr int phases = 1;
    static constexpr int n = elements_of_run<float>;
    static_assert(n == 4, "random_bits() has the bits of four elements");
    using Floats = typename Run<float, n>::Vector;
    using Codes = typename Run<std::uint16_t, n>::Vector;

    template <typename Element>
    VESCOMM_INLINE Codes round_all(const Parameters &p, const Floats &x, std::int64_t number) {
        Codes codes;
        if (p.stochastic == 0) {
            VESCOMM_UNROLL
            for (int k = 0; k < n; ++k) codes.at[k] = Element::narrow(x.at[k]);
            return codes;
        }
        const std::uint64_t bits =
            random_bits(p.random_stream, p.random_first + static_cast<std::uint64_t>(number));
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k)
            codes.at[k] = round_stochastically(
                Element{}, x.at[k], static_cast<std::uint32_t>(bits >> (16 * k)) & 0xffff);
        return codes;
    }

    template <typename Element>
    VESCOMM_INLINE void run_type(const Parameters &p, unsigned block, unsigned thread) {
        adamw_tile<Element>(p.adamw, block, thread, [&](const Floats &x, std::int64_t number) {
            return round_all<Element>(p, x, number);
        });
    }
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        if (p.adamw.slabs.target_type == VESCOMM_BF16) run_type<Bf16>(p, block, thread);
        else run_type<F16>(p, block, thread);
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
