/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0 */

/* AdamW on one element, for the loops of fsdp/adamw_isa.c and for the kernels of gpu/kernels. It is
 * compiled as C, C++ and CUDA, without contraction of a * b + c. */
#ifndef VESCOMM_EXECUTE_LOOPS_ADAMW_ELEMENT_H
#define VESCOMM_EXECUTE_LOOPS_ADAMW_ELEMENT_H

#include <math.h>
#include <stdbool.h>

#if defined(__CUDACC__)
#define VESCOMM_ADAMW_INLINE static inline __attribute__((always_inline)) __host__ __device__
#else
#define VESCOMM_ADAMW_INLINE static inline __attribute__((always_inline))
#endif

/* The constants of a step, rounded to float where PyTorch rounds. */
typedef struct vescomm_adamw {
    float gradient_scale;
    /* 1 - learning_rate * weight_decay */
    float decay;
    /* 1 - beta1 */
    float blend;
    float beta2;
    /* 1 - beta2 */
    float fresh;
    /* sqrt(1 - beta2^step) */
    float root_correction;
    float epsilon;
    /* learning_rate / (1 - beta1^step) */
    float step_size;
} vescomm_adamw_t;

/* Replaces any NaN by one value. An addition of two NaNs keeps one of them, and which one depends
 * on the order of operands that the compiler chooses. */
VESCOMM_ADAMW_INLINE float vescomm_adamw_canonical(float x) {
#if defined(__CUDA_ARCH__)
    return x == x ? x : __int_as_float(0x7fc00000);
#else
    return x == x ? x : __builtin_nanf("");
#endif
}

/* The moments after a gradient; NaNs are any.
 * `towards_new`: interpolates from the new value, as PyTorch's lerp does when that is nearer.
 * `weight`: step->blend, less 1 with `towards_new`. */
VESCOMM_ADAMW_INLINE void vescomm_adamw_moments(bool towards_new, float weight, float g, float *m,
                                                float *v, const vescomm_adamw_t *step) {
    const float gradient = g * step->gradient_scale;
    *m = (towards_new ? gradient : *m) + weight * (gradient - *m);
    *v = *v * step->beta2 + step->fresh * gradient * gradient;
}

/* The parameter after a step. `corrected`: the square root of the second moment, divided by
 * step->root_correction. */
VESCOMM_ADAMW_INLINE float vescomm_adamw_parameter(float p, float m, float corrected,
                                                   const vescomm_adamw_t *step) {
    const float root = corrected + step->epsilon;
    const float decayed = p * step->decay;
    return vescomm_adamw_canonical(decayed - step->step_size * m / root);
}

VESCOMM_ADAMW_INLINE void vescomm_adamw_element(bool towards_new, float weight, float *p, float g,
                                                float *m, float *v, const vescomm_adamw_t *step) {
    vescomm_adamw_moments(towards_new, weight, g, m, v, step);
    *p = vescomm_adamw_parameter(*p, *m, sqrtf(*v) / step->root_correction, step);
    *m = vescomm_adamw_canonical(*m);
    *v = vescomm_adamw_canonical(*v);
}

#endif
