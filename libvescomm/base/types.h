// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "vescomm/vescomm.h"

namespace vescomm {

// Bytes of an element; 0 for a number that names no type.
constexpr std::size_t size_of(vescomm_type_t type) {
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

inline std::string name_of_type(vescomm_type_t type) {
    static constexpr const char *names[] = {"f32", "bf16", "f16", "f64", "f8e4m3", "f8e5m2", "i8",
                                            "u8",  "i16",  "u16", "i32", "u32",    "i64",    "u64"};
    return type >= 0 && type <= VESCOMM_U64 ? names[type] : "type " + std::to_string(type);
}

}  // namespace vescomm
