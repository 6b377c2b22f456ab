/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0 */

/* The functions that adamw_isa.c defines for each instruction set. This header must not define
 * inline functions with external linkage: the linker keeps one copy of such a function, which might
 * be the one compiled for AVX-512. */
#ifndef VESCOMM_FSDP_ADAMW_ISA_H
#define VESCOMM_FSDP_ADAMW_ISA_H

#include <stddef.h>

#include "execute/loops/adamw_element.h"

#ifdef __cplusplus
#define VESCOMM_DECLARE_ADAMW(isa)                                                              \
    extern "C" void vescomm_adamw_##isa(float *p, const float *g, float *m, float *v, size_t n, \
                                        const vescomm_adamw_t *step) noexcept
#else
#define VESCOMM_DECLARE_ADAMW(isa)                                                   \
    void vescomm_adamw_##isa(float *p, const float *g, float *m, float *v, size_t n, \
                             const vescomm_adamw_t *step)
#endif

VESCOMM_DECLARE_ADAMW(baseline);
#if defined(__x86_64__)
VESCOMM_DECLARE_ADAMW(x86_64_v3);
VESCOMM_DECLARE_ADAMW(x86_64_v4);
#endif

#endif
