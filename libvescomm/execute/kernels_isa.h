/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0 */

/* What kernels.c defines, once for each instruction set. The functions are described in kernels.h.
 *
 * C, and no inline functions with external linkage: the linker keeps one copy of such a function,
 * and it might be the one compiled for AVX-512. */
#ifndef VESCOMM_EXECUTE_KERNELS_ISA_H
#define VESCOMM_EXECUTE_KERNELS_ISA_H

#include <stdbool.h>
#include <stddef.h>

#include "vescomm/vescomm.h"

#ifdef __cplusplus
#define VESCOMM_KERNEL(type, name) extern "C" type name
#define VESCOMM_NOEXCEPT noexcept
#else
#define VESCOMM_KERNEL(type, name) type name
#define VESCOMM_NOEXCEPT
#endif

#define VESCOMM_DECLARE_KERNELS(isa)                                                             \
    VESCOMM_KERNEL(void, vescomm_convert_##isa)                                                  \
    (void *to, vescomm_type_t to_type, const void *from, vescomm_type_t from_type, size_t count) \
        VESCOMM_NOEXCEPT;                                                                        \
    VESCOMM_KERNEL(void, vescomm_reduce_##isa)                                                   \
    (const void *const *sources, int n, vescomm_type_t source_type, void *to,                    \
     vescomm_type_t to_type, size_t count, bool accumulate, float scale) VESCOMM_NOEXCEPT;       \
    VESCOMM_KERNEL(double, vescomm_sum_of_squares_##isa)                                         \
    (const void *from, vescomm_type_t type, size_t count) VESCOMM_NOEXCEPT

VESCOMM_DECLARE_KERNELS(baseline);
#if defined(__x86_64__)
VESCOMM_DECLARE_KERNELS(x86_64_v3);
VESCOMM_DECLARE_KERNELS(x86_64_v4);
#endif

#endif
