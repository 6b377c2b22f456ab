// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/formats/element_types.h"

#include <algorithm>
#include <cassert>
#include <cctype>

namespace vescomm::formats {
namespace {

struct Type {
    vescomm_type_t type;
    std::string_view name;
    std::string_view torch;
    std::string_view safetensors;
};

constexpr Type types[] = {
    {VESCOMM_F32, "f32", "float32", "F32"},
    {VESCOMM_BF16, "bf16", "bfloat16", "BF16"},
    {VESCOMM_F16, "f16", "float16", "F16"},
    {VESCOMM_F64, "f64", "float64", "F64"},
    {VESCOMM_F8E4M3, "f8e4m3", "float8_e4m3fn", "F8_E4M3"},
    {VESCOMM_F8E5M2, "f8e5m2", "float8_e5m2", "F8_E5M2"},
    {VESCOMM_I8, "i8", "int8", "I8"},
    {VESCOMM_U8, "u8", "uint8", "U8"},
    {VESCOMM_I16, "i16", "int16", "I16"},
    {VESCOMM_U16, "u16", "uint16", "U16"},
    {VESCOMM_I32, "i32", "int32", "I32"},
    {VESCOMM_U32, "u32", "uint32", "U32"},
    {VESCOMM_I64, "i64", "int64", "I64"},
    {VESCOMM_U64, "u64", "uint64", "U64"},
    {VESCOMM_BOOL, "bool", "bool", "BOOL"},
    {VESCOMM_C64, "c64", "complex64", "C64"},
    {VESCOMM_C128, "c128", "complex128", ""},
    // These are only moved, never reduced, so any type of one byte serves. Names above are found
    // first.
    {VESCOMM_U8, "f8e8m0", "float8_e8m0fnu", "U8"},
    {VESCOMM_U8, "f4x2", "float4_e2m1fn_x2", "U8"},
};

struct PackedType {
    std::string_view name;
    int bits;
};

constexpr PackedType packed_types[] = {{"f4", 4}, {"f6e2m3", 6}, {"f6e3m2", 6}};

const Type &entry_of(vescomm_type_t type) {
    const auto found = std::ranges::find(types, type, &Type::type);
    assert(found != std::end(types));
    return *found;
}

// Normalises a name: "F8_E4M3" and "f8e4m3" are equal.
std::string plain(std::string_view name) {
    std::string result;
    for (const char letter : name)
        if (letter != '_')
            result += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    return result;
}

}  // namespace

std::optional<std::int64_t> count_elements(const std::vector<std::int64_t> &shape) {
    if (std::ranges::find(shape, 0) != shape.end()) return 0;
    std::int64_t product = 1;
    for (const std::int64_t extent : shape)
        if (__builtin_mul_overflow(product, extent, &product) || product > max_elements)
            return std::nullopt;
    return product;
}

std::string_view name_of(vescomm_type_t type) {
    return entry_of(type).name;
}

std::int64_t bytes_of(vescomm_type_t type) {
    return static_cast<std::int64_t>(vescomm_type_get_bytes(type));
}

std::optional<vescomm_type_t> type_named(std::string_view name) {
    constexpr std::string_view torch = "torch.";
    if (name.starts_with(torch)) name.remove_prefix(torch.size());
    const std::string wanted = plain(name);
    for (const Type &type : types)
        if (wanted == type.name || wanted == plain(type.torch)) return type.type;
    return std::nullopt;
}

std::string type_names() {
    std::string names;
    for (const Type &type : types) names += (names.empty() ? "" : ", ") + std::string(type.name);
    for (const PackedType &type : packed_types) names += ", " + std::string(type.name);
    return names;
}

std::optional<std::string_view> safetensors_name_of(vescomm_type_t type) {
    const std::string_view name = entry_of(type).safetensors;
    if (name.empty()) return std::nullopt;
    return name;
}

std::optional<int> packed_bits(std::string_view name) {
    const auto found = std::ranges::find(packed_types, plain(name), &PackedType::name);
    if (found == std::end(packed_types)) return std::nullopt;
    return found->bits;
}

bool count_bytes(std::vector<std::int64_t> &shape, int bits) {
    constexpr int byte = 8;
    if (shape.empty() || shape.back() % byte * bits % byte != 0) return false;
    // This order avoids overflow.
    shape.back() = shape.back() / byte * bits + shape.back() % byte * bits / byte;
    return true;
}

}  // namespace vescomm::formats
