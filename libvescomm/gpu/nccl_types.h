// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "gpu/nccl_functions.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal::nccl {

// The type as which NCCL reduces elements on every GPU; nothing for types that it does not reduce,
// or on some GPUs only.
inline std::optional<Type> reduced_type(vescomm_type_t type) {
    switch (type) {
        case VESCOMM_F32:
            return f32;
        case VESCOMM_BF16:
            return bf16;
        case VESCOMM_F16:
            return f16;
        case VESCOMM_F64:
            return f64;
        case VESCOMM_I8:
            return i8;
        case VESCOMM_U8:
            return u8;
        case VESCOMM_I32:
            return i32;
        case VESCOMM_U32:
            return u32;
        case VESCOMM_I64:
            return i64;
        case VESCOMM_U64:
            return u64;
        default:
            return std::nullopt;
    }
}

}  // namespace vescomm::internal::nccl
