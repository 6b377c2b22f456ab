// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "types.h"

#include <array>

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// Codes of DLPack 1.1.
enum Code : std::uint8_t {
    code_int = 0,
    code_uint = 1,
    code_float = 2,
    code_bfloat = 4,
    code_complex = 5,
    code_bool = 6,
    code_e4m3fn = 10,
    code_e5m2 = 12,
};

struct Row {
    vescomm_type_t type;
    const char *name;
    Code code;
    std::uint8_t bits;
    const char *format;  // of the buffer protocol, or nullptr
    std::string_view numpy;
};

constexpr std::array<Row, 17> rows{{
    {VESCOMM_F32, "F32", code_float, 32, "f", "float32"},
    {VESCOMM_BF16, "BF16", code_bfloat, 16, nullptr, "bfloat16"},
    {VESCOMM_F16, "F16", code_float, 16, "e", "float16"},
    {VESCOMM_F64, "F64", code_float, 64, "d", "float64"},
    {VESCOMM_F8E4M3, "F8E4M3", code_e4m3fn, 8, nullptr, "float8_e4m3fn"},
    {VESCOMM_F8E5M2, "F8E5M2", code_e5m2, 8, nullptr, "float8_e5m2"},
    {VESCOMM_I8, "I8", code_int, 8, "b", "int8"},
    {VESCOMM_U8, "U8", code_uint, 8, "B", "uint8"},
    {VESCOMM_I16, "I16", code_int, 16, "h", "int16"},
    {VESCOMM_U16, "U16", code_uint, 16, "H", "uint16"},
    {VESCOMM_I32, "I32", code_int, 32, "i", "int32"},
    {VESCOMM_U32, "U32", code_uint, 32, "I", "uint32"},
    {VESCOMM_I64, "I64", code_int, 64, "q", "int64"},
    {VESCOMM_U64, "U64", code_uint, 64, "Q", "uint64"},
    {VESCOMM_BOOL, "BOOL", code_bool, 8, "?", "bool"},
    {VESCOMM_C64, "C64", code_complex, 64, "Zf", "complex64"},
    {VESCOMM_C128, "C128", code_complex, 128, "Zd", "complex128"},
}};

const Row *row_of(vescomm_type_t type) noexcept {
    for (const Row &row : rows)
        if (row.type == type) return &row;
    return nullptr;
}

}  // namespace

vescomm_type_t type_of(nb::dlpack::dtype type) noexcept {
    if (type.lanes != 1) return VESCOMM_TYPE_DEFAULT;
    for (const Row &row : rows)
        if (row.code == type.code && row.bits == type.bits) return row.type;
    return VESCOMM_TYPE_DEFAULT;
}

nb::dlpack::dtype dlpack_of(vescomm_type_t type) noexcept {
    const Row &row = *row_of(type);
    nb::dlpack::dtype result;
    result.code = row.code;
    result.bits = row.bits;
    result.lanes = 1;
    return result;
}

vescomm_type_t type_of(std::string_view name) noexcept {
    for (const Row &row : rows)
        if (row.numpy == name) return row.type;
    return VESCOMM_TYPE_DEFAULT;
}

const char *format_of(vescomm_type_t type) noexcept {
    return row_of(type)->format;
}

const char *name_of(vescomm_type_t type) noexcept {
    const Row *row = row_of(type);
    return row == nullptr ? "unknown" : row->name;
}

nb::object to_python(vescomm_type_t type) {
    return nb::module_::import_("vescomm.types").attr("Type")(type);
}

}  // namespace vescomm::python
