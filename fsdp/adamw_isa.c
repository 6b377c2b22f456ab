/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0 */

/* The loop of adamw.h. It is compiled once for each instruction set, named by VESCOMM_ISA, without
 * contraction of a * b + c (-ffp-contract=off). The compiler vectorises it. Zone: per byte. */
#include "fsdp/adamw_isa.h"

#include <float.h>
#include <stdbool.h>

#if FLT_EVAL_METHOD != 0
#error "the kernels need float arithmetic in float precision (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)

/* `towards_new`: interpolate from the new value, as PyTorch's lerp does when that is nearer. */
static inline __attribute__((always_inline)) void update(bool towards_new, float *restrict p,
                                                         const float *restrict g, float *restrict m,
                                                         float *restrict v, size_t n,
                                                         const vescomm_adamw_t step) {
    const float weight = towards_new ? step.blend - 1.0f : step.blend;
    for (size_t i = 0; i < n; ++i)
        vescomm_adamw_element(towards_new, weight, p + i, g[i], m + i, v + i, &step);
}

void PASTE(vescomm_adamw, VESCOMM_ISA)(float *p, const float *g, float *m, float *v, size_t n,
                                       const vescomm_adamw_t *step) {
    if (step->blend < 0.5f) {
        update(false, p, g, m, v, n, *step);
    } else {
        update(true, p, g, m, v, n, *step);
    }
}
