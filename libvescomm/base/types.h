// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

// Types and operators are numbered without gaps.
inline constexpr vescomm_type_t last_type = VESCOMM_C128;
inline constexpr vescomm_op_t last_op = VESCOMM_LOGICAL_XOR;

inline std::size_t size_of(vescomm_type_t type) {
    return vescomm_type_get_bytes(type);
}

// Arrays of a complex type are aligned to one part.
inline std::size_t alignment_of(vescomm_type_t type) {
    const bool is_complex = type == VESCOMM_C64 || type == VESCOMM_C128;
    return size_of(type) / (is_complex ? 2 : 1);
}

inline std::string name_of_type(vescomm_type_t type) {
    static constexpr const char *names[] = {"f32", "bf16", "f16",  "f64", "f8e4m3", "f8e5m2",
                                            "i8",  "u8",   "i16",  "u16", "i32",    "u32",
                                            "i64", "u64",  "bool", "c64", "c128"};
    const bool is_type = type >= VESCOMM_F32 && type <= last_type;
    return is_type ? names[type - VESCOMM_F32] : "type " + std::to_string(type);
}

inline std::string name_of_op(vescomm_op_t op) {
    static constexpr const char *names[] = {"sum",         "average",    "prod",
                                            "min",         "max",        "premultiplied sum",
                                            "bitwise and", "bitwise or", "bitwise xor",
                                            "logical and", "logical or", "logical xor"};
    return op >= 0 && op <= last_op ? names[op] : "op " + std::to_string(op);
}

}  // namespace vescomm::internal
