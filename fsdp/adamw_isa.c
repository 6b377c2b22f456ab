/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0 */

/* The loop of adamw.h. It is compiled once for each instruction set, named by VESCOMM_ISA, without
 * contraction of a * b + c (-ffp-contract=off). The compiler vectorises it. Zone: per byte. */
#include "fsdp/adamw_isa.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#if FLT_EVAL_METHOD != 0
#error "the kernels need float arithmetic in float precision (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)

/* Replaces any NaN by one value. An addition of two NaNs keeps one of them, and which one depends
 * on the order of operands that the compiler chooses. */
static inline float canonical(float x) {
    return x == x ? x : __builtin_nanf("");
}

/* `towards_new`: interpolate from the new value, as PyTorch's lerp does when that is nearer. */
static inline __attribute__((always_inline)) void update(bool towards_new, float *restrict p,
                                                         const float *restrict g, float *restrict m,
                                                         float *restrict v, size_t n,
                                                         const vescomm_adamw_t step) {
    const float weight = towards_new ? step.blend - 1.0f : step.blend;
    for (size_t i = 0; i < n; ++i) {
        const float gradient = g[i] * step.gradient_scale;
        const float mean = (towards_new ? gradient : m[i]) + weight * (gradient - m[i]);
        const float square = v[i] * step.beta2 + step.fresh * gradient * gradient;
        const float root = sqrtf(square) / step.root_correction + step.epsilon;
        const float decayed = p[i] * step.decay;
        m[i] = canonical(mean);
        v[i] = canonical(square);
        p[i] = canonical(decayed - step.step_size * mean / root);
    }
}

void PASTE(vescomm_adamw, VESCOMM_ISA)(float *p, const float *g, float *m, float *v, size_t n,
                                       const vescomm_adamw_t *step) {
    if (step->blend < 0.5f) {
        update(false, p, g, m, v, n, *step);
    } else {
        update(true, p, g, m, v, n, *step);
    }
}
