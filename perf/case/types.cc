// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/case/types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <stdexcept>
#include <type_traits>

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

// Writes the upper half of an f32, which is exact for the numbers used here.
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

// A float with fewer bits: the bias of the exponent changes, and the upper bits of the mantissa are
// kept. Exact for the whole numbers used here, none of which is subnormal or infinite.
template <typename Bits, int exponent_bits, int mantissa_bits>
struct Narrow {
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1;

    static void write(std::int64_t value, std::byte *to) {
        const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
        const std::uint32_t exponent = (bits >> 23) - 127 + bias;
        const std::uint32_t mantissa = bits >> (23 - mantissa_bits) & ((1U << mantissa_bits) - 1);
        const auto narrow =
            static_cast<Bits>(value == 0 ? 0 : exponent << mantissa_bits | mantissa);
        std::memcpy(to, &narrow, sizeof narrow);
    }

    static double read(const std::byte *from) {
        Bits narrow;
        std::memcpy(&narrow, from, sizeof narrow);
        const int exponent = narrow >> mantissa_bits & ((1 << exponent_bits) - 1);
        const int mantissa = narrow & ((1 << mantissa_bits) - 1);
        const int whole = exponent == 0 ? mantissa : (1 << mantissa_bits) + mantissa;
        const double size = std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
        return narrow >> (exponent_bits + mantissa_bits) != 0 ? -size : size;
    }
};

using F16 = Narrow<std::uint16_t, 5, 10>;
using F8e4m3 = Narrow<std::uint8_t, 4, 3>;
using F8e5m2 = Narrow<std::uint8_t, 5, 2>;

template <typename T>
constexpr Type plain(std::string_view name, std::string_view nccl_name, vescomm_type_t number,
                     std::int64_t exact) {
    constexpr Kind kind = std::is_floating_point_v<T> ? Kind::floating : Kind::integer;
    return {name, nccl_name, number, kind, exact, write_plain<T>, read_plain<T>};
}

void write_bool(std::int64_t value, std::byte *to) {
    *to = std::byte{value != 0};
}

template <typename T>
void write_complex(std::int64_t value, std::byte *to) {
    const std::complex<T> element(static_cast<T>(value));
    std::memcpy(to, &element, sizeof element);
}

// NaN, which is never right, if there is an imaginary part.
template <typename T>
double read_complex(const std::byte *from) {
    std::complex<T> element;
    std::memcpy(&element, from, sizeof element);
    return element.imag() == 0 ? static_cast<double>(element.real()) : std::nan("");
}

constexpr Type table[] = {
    plain<float>("f32", "float", VESCOMM_F32, 1 << 24),
    {"bf16", "bfloat16", VESCOMM_BF16, Kind::floating, 256, write_bf16, read_bf16},
    {"f16", "half", VESCOMM_F16, Kind::floating, 2048, F16::write, F16::read},
    plain<double>("f64", "double", VESCOMM_F64, std::int64_t{1} << 53),
    {"f8e4m3", "f8e4m3", VESCOMM_F8E4M3, Kind::floating, 16, F8e4m3::write, F8e4m3::read},
    {"f8e5m2", "f8e5m2", VESCOMM_F8E5M2, Kind::floating, 8, F8e5m2::write, F8e5m2::read},
    plain<std::int8_t>("i8", "int8", VESCOMM_I8, 127),
    plain<std::uint8_t>("u8", "uint8", VESCOMM_U8, 255),
    plain<std::int16_t>("i16", "int16", VESCOMM_I16, 32767),
    plain<std::uint16_t>("u16", "uint16", VESCOMM_U16, 65535),
    plain<std::int32_t>("i32", "int32", VESCOMM_I32, INT32_MAX),
    plain<std::uint32_t>("u32", "uint32", VESCOMM_U32, INT32_MAX),
    plain<std::int64_t>("i64", "int64", VESCOMM_I64, INT32_MAX),
    plain<std::uint64_t>("u64", "uint64", VESCOMM_U64, INT32_MAX),
    {"bool", "bool", VESCOMM_BOOL, Kind::truth, 1, write_bool, read_plain<std::uint8_t>},
    {"c64", "complex64", VESCOMM_C64, Kind::complex, 1 << 24, write_complex<float>,
     read_complex<float>},
    {"c128", "complex128", VESCOMM_C128, Kind::complex, std::int64_t{1} << 53,
     write_complex<double>, read_complex<double>},
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
