/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * For the kernels, which are C, and for everybody else. */
#pragma once

#include <stddef.h>

#include "vescomm/vescomm.h"

/* clang-format off */
#ifdef __cplusplus
namespace vescomm {
constexpr
#else
static inline
#endif
/* Bytes of an element; 0 for a number that names no type. */
size_t size_of(vescomm_type_t type) {
    /* clang-format on */
    switch (type) {
        case VESCOMM_F8E4M3:
        case VESCOMM_F8E5M2:
        case VESCOMM_I8:
        case VESCOMM_U8:
            return 1;
        case VESCOMM_BF16:
        case VESCOMM_F16:
        case VESCOMM_I16:
        case VESCOMM_U16:
            return 2;
        case VESCOMM_F32:
        case VESCOMM_I32:
        case VESCOMM_U32:
            return 4;
        case VESCOMM_F64:
        case VESCOMM_I64:
        case VESCOMM_U64:
            return 8;
        default:
            return 0;
    }
}
#ifdef __cplusplus
}  // namespace vescomm
#endif
