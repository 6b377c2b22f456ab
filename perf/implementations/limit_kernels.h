/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0 */

/* The kernels of `limit`, compiled once for each instruction set. */
#ifndef VESCOMM_PERF_LIMIT_KERNELS_H
#define VESCOMM_PERF_LIMIT_KERNELS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels of one instruction set. */
typedef struct limit_kernels {
    /* Copies with streaming stores if the instruction set has them. `to` is aligned to the size of
     * an element. */
    void (*stream)(void *to, const void *from, size_t bytes);
    /* sums[i] = scale * (sources[0][first + i] + ... + sources[n - 1][first + i]), n at least 1. */
    void (*sum_f32)(float *sums, const void *const *sources, int n, size_t first, size_t count,
                    float scale);
    /* sum_f32 for sources of bf16, the upper halves of f32. */
    void (*sum_bf16)(float *sums, const void *const *sources, int n, size_t first, size_t count,
                     float scale);
    /* Rounds to nearest, ties to even. */
    void (*to_bf16)(unsigned short *to, const float *from, size_t count);
} limit_kernels_t;

extern const limit_kernels_t limit_kernels_baseline;
#if defined(__x86_64__)
extern const limit_kernels_t limit_kernels_x86_64_v3;
extern const limit_kernels_t limit_kernels_x86_64_v4;
#endif

#ifdef __cplusplus
}
#endif

#endif
