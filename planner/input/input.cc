// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/input/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cctype>
#include <fstream>

namespace vescomm::planner {
namespace {

struct Type {
    vescomm_type_t type;
    std::string_view name;
    std::string_view torch;
};

constexpr Type types[] = {
    {VESCOMM_F32, "f32", "float32"},
    {VESCOMM_BF16, "bf16", "bfloat16"},
    {VESCOMM_F16, "f16", "float16"},
    {VESCOMM_F64, "f64", "float64"},
    {VESCOMM_F8E4M3, "f8e4m3", "float8_e4m3fn"},
    {VESCOMM_F8E5M2, "f8e5m2", "float8_e5m2"},
    {VESCOMM_I8, "i8", "int8"},
    {VESCOMM_U8, "u8", "uint8"},
    {VESCOMM_I16, "i16", "int16"},
    {VESCOMM_U16, "u16", "uint16"},
    {VESCOMM_I32, "i32", "int32"},
    {VESCOMM_U32, "u32", "uint32"},
    {VESCOMM_I64, "i64", "int64"},
    {VESCOMM_U64, "u64", "uint64"},
    {VESCOMM_BOOL, "bool", "bool"},
    {VESCOMM_C64, "c64", "complex64"},
    {VESCOMM_C128, "c128", "complex128"},
    // These are only moved, never reduced, so any type of one byte serves. Names above are found
    // first.
    {VESCOMM_U8, "f8e8m0", "float8_e8m0fnu"},
    {VESCOMM_U8, "f4x2", "float4_e2m1fn_x2"},
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

std::string read_text_file(const std::string &path, const std::string &where) {
    constexpr std::size_t max = std::size_t{256} << 20;
    std::ifstream file(path, std::ios::binary);
    std::string text;
    std::array<char, 1 << 16> piece;
    // Read in pieces, because a pipe has no size. A folder fails here.
    while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
        text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
        if (text.size() > max)
            throw InputError(fmt::format(
                "{} has more than {} bytes, the most for a list of tensors", where, max));
    }
    if (!file.eof()) throw InputError(where + " cannot be read");
    return text;
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

}  // namespace vescomm::planner
