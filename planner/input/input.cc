// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/input/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>

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
    // Only moved, never added up: any type of a byte will do. Names above are found first.
    {VESCOMM_U8, "bool", "bool"},
    {VESCOMM_U8, "f8e8m0", "float8_e8m0fnu"},
};

const Type &entry_of(vescomm_type_t type) {
    const auto found = std::ranges::find(types, type, &Type::type);
    assert(found != std::end(types));
    return *found;
}

// "F8_E4M3" and "f8e4m3" are one name.
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
        if (__builtin_mul_overflow(product, extent, &product) || product > most_elements)
            return std::nullopt;
    return product;
}

std::string read_text_file(const std::string &path, const std::string &where) {
    constexpr std::uintmax_t most = std::uintmax_t{256} << 20;
    std::error_code failure;
    const std::uintmax_t size = std::filesystem::file_size(path, failure);
    std::ifstream file(path, std::ios::binary);
    if (failure || !file) throw InputError(where + " cannot be read");
    if (size > most)
        throw InputError(
            fmt::format("{} has {} bytes; a list of tensors may have {}", where, size, most));
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string_view name_of(vescomm_type_t type) {
    return entry_of(type).name;
}

std::int64_t bytes_of(vescomm_type_t type) {
    return static_cast<std::int64_t>(vescomm_type_bytes(type));
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
    return names;
}

}  // namespace vescomm::planner
