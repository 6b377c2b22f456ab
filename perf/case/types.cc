// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/case/types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace vescomm::perf {
namespace {

template <typename T>
void write_plain(std::int64_t value, std::byte *to) {
    const T element = static_cast<T>(value);
    std::memcpy(to, &element, sizeof element);
}

template <typename T>
double read_plain(const std::byte *from) {
    T element;
    std::memcpy(&element, from, sizeof element);
    return static_cast<double>(element);
}

// The upper half of an f32; exact for the numbers that are written.
void write_bf16(std::int64_t value, std::byte *to) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    const auto half = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(to, &half, sizeof half);
}

double read_bf16(const std::byte *from) {
    std::uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

// Whole numbers up to 2048: the exponent's bias changes, and the mantissa keeps its upper ten bits.
void write_f16(std::int64_t value, std::byte *to) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    const std::uint32_t exponent = (bits >> 23) - 127 + 15;
    const auto half =
        static_cast<std::uint16_t>(value == 0 ? 0 : exponent << 10 | (bits >> 13 & 0x3ff));
    std::memcpy(to, &half, sizeof half);
}

double read_f16(const std::byte *from) {
    std::uint16_t half;
    std::memcpy(&half, from, sizeof half);
    const int exponent = half >> 10 & 0x1f;
    const int mantissa = half & 0x3ff;
    const double size =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return (half & 0x8000) != 0 ? -size : size;
}

template <typename T>
constexpr Type plain(std::string_view name, std::string_view nccl_name, vescomm_type_t number,
                     std::int64_t exact) {
    return {name, nccl_name, number, exact, write_plain<T>, read_plain<T>};
}

// Types of eight bits that are only moved: a byte is as good as another.
constexpr Type table[] = {
    plain<float>("f32", "float", VESCOMM_F32, 1 << 24),
    {"bf16", "bfloat16", VESCOMM_BF16, 256, write_bf16, read_bf16},
    {"f16", "half", VESCOMM_F16, 2048, write_f16, read_f16},
    plain<double>("f64", "double", VESCOMM_F64, std::int64_t{1} << 53),
    plain<std::uint8_t>("f8e4m3", "f8e4m3", VESCOMM_F8E4M3, 127),
    plain<std::uint8_t>("f8e5m2", "f8e5m2", VESCOMM_F8E5M2, 127),
    plain<std::int8_t>("i8", "int8", VESCOMM_I8, 127),
    plain<std::uint8_t>("u8", "uint8", VESCOMM_U8, 255),
    plain<std::int16_t>("i16", "int16", VESCOMM_I16, 32767),
    plain<std::uint16_t>("u16", "uint16", VESCOMM_U16, 65535),
    plain<std::int32_t>("i32", "int32", VESCOMM_I32, INT32_MAX),
    plain<std::uint32_t>("u32", "uint32", VESCOMM_U32, INT32_MAX),
    plain<std::int64_t>("i64", "int64", VESCOMM_I64, INT32_MAX),
    plain<std::uint64_t>("u64", "uint64", VESCOMM_U64, INT32_MAX),
};

}  // namespace

std::span<const Type> types() {
    return table;
}

const Type &find_type(std::string_view name) {
    const auto found = std::ranges::find_if(
        table, [&](const Type &type) { return name == type.name || name == type.nccl_name; });
    if (found != std::end(table)) return *found;
    std::string known;
    for (const Type &type : table) known += (known.empty() ? "" : ", ") + std::string(type.name);
    throw std::invalid_argument("type \"" + std::string(name) + "\": there is " + known);
}

}  // namespace vescomm::perf
