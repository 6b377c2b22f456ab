// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/random_bits.h"
#include "execute/loops/stochastic_rounding.h"
#include "gpu/kernels/slabs.h"

// Bodies of the steps of optimizers on parameters in f32, bf16 and f16. A class of an optimizer has
// what a body has, and run<Element>(..., round): parameters are stored as `Element`, and
// round(x, number of the first element in the slab) rounds consecutive results in `x`. Results have
// the bits of execute/kernels.h or fsdp/optimizers/stochastic_rounding.h.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

constexpr int elements_of_step = elements_of_run<float>;
using FloatRun = Run<float, elements_of_step>;
using StepFloats = typename FloatRun::Vector;

// Replaces the scale of gradients by the factor of clipping. Returns false if the step is skipped.
VESCOMM_INLINE bool clip_gradients(const vescomm_gpu_clip_t *clip, float *gradient_scale) {
    if (clip == nullptr) return true;
    *gradient_scale = clip->factor;
    return clip->skip == 0;
}

// Parameters in f32.
template <typename Optimizer>
struct WideStep {
    using Parameters = typename Optimizer::Parameters;
    using Shared = typename Optimizer::Shared;
    static constexpr int phases = Optimizer::phases;
    static constexpr int min_blocks = Optimizer::min_blocks;

    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        Optimizer::template run<F32>(
            phase, p, shared, block, thread,
            [](const StepFloats &x, std::int64_t) -> const StepFloats & { return x; });
    }
};

// Parameters in bf16 or f16: another kernel, so that the one for f32 needs no more registers.
template <typename Optimizer>
struct NarrowStep {
    using Parameters = gpu_kernel::Narrow<typename Optimizer::Parameters>;
    using Shared = typename Optimizer::Shared;
    static constexpr int phases = Optimizer::phases;
    static constexpr int min_blocks = Optimizer::min_blocks;
    static_assert(elements_of_step == 4, "random_bits() has the bits of four elements");
    using Codes = typename Run<std::uint16_t, elements_of_step>::Vector;

    template <typename Element>
    VESCOMM_INLINE Codes round_all(const Parameters &p, const StepFloats &x, std::int64_t number) {
        Codes codes;
        if (p.stochastic == 0) {
            VESCOMM_UNROLL
            for (int k = 0; k < elements_of_step; ++k) codes.at[k] = Element::narrow(x.at[k]);
            return codes;
        }
        const std::uint64_t bits =
            random_bits(p.random_stream, p.random_first + static_cast<std::uint64_t>(number));
        VESCOMM_UNROLL
        for (int k = 0; k < elements_of_step; ++k)
            codes.at[k] = round_stochastically(
                Element{}, x.at[k], static_cast<std::uint32_t>(bits >> (16 * k)) & 0xffff);
        return codes;
    }

    template <typename Element>
    VESCOMM_INLINE void run_type(int phase, const Parameters &p, Shared &shared, unsigned block,
                                 unsigned thread) {
        Optimizer::template run<Element>(phase, p.wide, shared, block, thread,
                                         [&](const StepFloats &x, std::int64_t number) {
                                             return round_all<Element>(p, x, number);
                                         });
    }
    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        if (p.wide.slabs.target_type == VESCOMM_BF16)
            run_type<Bf16>(phase, p, shared, block, thread);
        else run_type<F16>(phase, p, shared, block, thread);
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
