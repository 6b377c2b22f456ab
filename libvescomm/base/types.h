// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

inline std::size_t size_of(vescomm_type_t type) {
    return vescomm_type_get_bytes(type);
}

inline std::string name_of_type(vescomm_type_t type) {
    static constexpr const char *names[] = {"f32", "bf16", "f16", "f64", "f8e4m3", "f8e5m2", "i8",
                                            "u8",  "i16",  "u16", "i32", "u32",    "i64",    "u64"};
    const bool is_type = type >= VESCOMM_F32 && type <= VESCOMM_U64;
    return is_type ? names[type - VESCOMM_F32] : "type " + std::to_string(type);
}

inline std::string name_of_op(vescomm_op_t op) {
    static constexpr const char *names[] = {"sum", "average", "prod",
                                            "min", "max",     "premultiplied sum"};
    return op >= 0 && op <= VESCOMM_PREMULTIPLIED_SUM ? names[op] : "op " + std::to_string(op);
}

}  // namespace vescomm::internal
