// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/types.h"
#include "execute/kernels.h"

// Plain reference code for the kernels, and helpers to compare each instruction set of this machine
// with it, bit by bit, like dav1d's checkasm.
namespace vescomm::internal {

inline constexpr std::size_t max_shift = 33;  // elements; more than one 64-byte vector of bf16

inline constexpr vescomm_type_t all_types[] = {
    VESCOMM_F32, VESCOMM_BF16, VESCOMM_F16,  VESCOMM_F64, VESCOMM_F8E4M3, VESCOMM_F8E5M2,
    VESCOMM_I8,  VESCOMM_U8,   VESCOMM_I16,  VESCOMM_U16, VESCOMM_I32,    VESCOMM_U32,
    VESCOMM_I64, VESCOMM_U64,  VESCOMM_BOOL, VESCOMM_C64, VESCOMM_C128};
inline constexpr vescomm_type_t narrow_types[] = {VESCOMM_BF16, VESCOMM_F16, VESCOMM_F8E4M3,
                                                  VESCOMM_F8E5M2};

// The type of the two parts of a complex number; every other type itself.
inline vescomm_type_t part_of(vescomm_type_t type) {
    return type == VESCOMM_C64 ? VESCOMM_F32 : type == VESCOMM_C128 ? VESCOMM_F64 : type;
}

inline std::size_t parts(vescomm_type_t type) {
    return size_of(type) / size_of(part_of(type));
}

// `bytes` bytes, at `shift` bytes after a multiple of 64, between guard bytes that must not change.
class Guarded {
public:
    explicit Guarded(std::size_t bytes, std::size_t shift = 0)
        : store_(bytes + shift + 3 * guard, filler), bytes_(bytes) {
        const auto address = reinterpret_cast<std::uintptr_t>(store_.data());
        start_ = (address + guard + guard - 1) / guard * guard - address + shift;
    }
    char *data() { return store_.data() + start_; }
    bool guards_intact() const {
        const auto untouched = [](char c) { return c == filler; };
        return std::all_of(store_.begin(), store_.begin() + start_, untouched) &&
               std::all_of(store_.begin() + start_ + bytes_, store_.end(), untouched);
    }

private:
    static constexpr char filler = 0x5a;
    static constexpr std::size_t guard = 64;

    std::vector<char> store_;
    std::size_t bytes_;
    std::size_t start_;
};

// A format of 16 or 8 bits, by the specification: a sign, an exponent, a fraction.
struct Format {
    int bits;
    int exponent_bits;
    std::uint64_t overflow;  // the first code past the finite ones
    std::uint64_t nan;
    int fraction_bits() const { return bits - 1 - exponent_bits; }
    std::uint64_t sign() const { return std::uint64_t{1} << (bits - 1); }
};

inline const Format &format_of(vescomm_type_t type) {
    static constexpr Format bf16{16, 8, 0x7f80, 0x7fc0}, f16{16, 5, 0x7c00, 0x7e00};
    static constexpr Format e4m3{8, 4, 0x7f, 0x7f}, e5m2{8, 5, 0x7c, 0x7f};
    return type == VESCOMM_BF16     ? bf16
           : type == VESCOMM_F16    ? f16
           : type == VESCOMM_F8E4M3 ? e4m3
                                    : e5m2;
}

// Its numbers by code, positive half. The last is where the next one would be: infinity or, in
// f8e4m3, NaN.
inline const std::vector<double> &magnitudes_of(vescomm_type_t type) {
    static std::vector<double> tables[last_type + 1];
    std::vector<double> &values = tables[type];
    const Format &format = format_of(type);
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    for (std::uint64_t code = values.size(); code <= format.overflow; ++code) {
        const auto exponent = static_cast<int>(code >> format.fraction_bits());
        const auto fraction = static_cast<int>(code & ((1u << format.fraction_bits()) - 1));
        const int hidden = exponent > 0 ? 1 << format.fraction_bits() : 0;
        values.push_back(
            std::ldexp(hidden + fraction, std::max(exponent, 1) - bias - format.fraction_bits()));
    }
    return values;
}

// The nearest code, by search; of two equally near codes the even one.
inline std::uint64_t narrow(vescomm_type_t type, double x) {
    const Format &format = format_of(type);
    const std::vector<double> &values = magnitudes_of(type);
    if (std::isnan(x)) return format.nan;
    const double magnitude = std::fabs(x);
    const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
    std::uint64_t code = std::min<std::uint64_t>(above - values.begin(), values.size() - 1);
    if (code > 0) {
        const double up = values[code] - magnitude;
        const double down = magnitude - values[code - 1];
        if (down < up || (down == up && code % 2 == 1)) --code;
    }
    if (code == format.nan) return code;
    return code | (std::signbit(x) ? format.sign() : 0);
}

inline double widen(vescomm_type_t type, std::uint64_t code) {
    const Format &format = format_of(type);
    const std::uint64_t magnitude = code & (format.sign() - 1);
    if (magnitude > format.overflow || magnitude == format.nan)
        return std::numeric_limits<double>::quiet_NaN();
    const double x = magnitude == format.overflow ? HUGE_VAL : magnitudes_of(type)[magnitude];
    return code & format.sign() ? -x : x;
}

// Bits of an element of any type that is not complex, zero-extended.
inline std::uint64_t bits_at(const char *from, vescomm_type_t type, std::size_t i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, from + i * size_of(type), std::min(size_of(type), sizeof bits));
    return bits;
}

inline void set_bits(char *to, vescomm_type_t type, std::size_t i, std::uint64_t bits) {
    std::memcpy(to + i * size_of(type), &bits, std::min(size_of(type), sizeof bits));
}

// A float of any type as a double, which is exact.
inline double float_at(const char *from, vescomm_type_t type, std::size_t i) {
    const std::uint64_t bits = bits_at(from, type, i);
    if (type == VESCOMM_F64) return std::bit_cast<double>(bits);
    if (type == VESCOMM_F32) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    return widen(type, bits);
}

// A double as the bits of a float of any type, rounded once.
inline std::uint64_t float_bits(vescomm_type_t type, double x) {
    if (type == VESCOMM_F64)
        return std::isnan(x) ? 0x7ff8000000000000 : std::bit_cast<std::uint64_t>(x);
    if (type == VESCOMM_F32)
        return std::isnan(x) ? 0x7fc00000 : std::bit_cast<std::uint32_t>(static_cast<float>(x));
    return narrow(type, x);
}

// Critical values. Floats: NaNs with and without payload, infinities, signed zeros, subnormals, the
// largest numbers, and a few around one. Integers: the ends of the range.
inline std::vector<std::uint64_t> special_bits(vescomm_type_t type) {
    if (!is_float(type)) {
        const int bits = static_cast<int>(8 * size_of(type));
        const std::uint64_t all = ~std::uint64_t{0} >> (64 - bits), sign = all / 2 + 1;
        return {0, 1, 2, 3, all, all - 1, sign, sign - 1, sign + 1, all / 3};
    }
    const double min = type == VESCOMM_F64   ? 0x1p-1074
                       : type == VESCOMM_F32 ? 0x1p-149
                                             : magnitudes_of(type)[1];
    std::vector<std::uint64_t> result;
    for (const double x : {0.0, min, 3 * min, 1.0, 1.5, 0x1p8, 0x1p127, 0x1p1023, HUGE_VAL})
        for (const double signed_x : {x, -x}) result.push_back(float_bits(type, signed_x));
    const int bits = static_cast<int>(8 * size_of(type));
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - bits);
    const std::uint64_t infinity = float_bits(type, HUGE_VAL);
    for (const std::uint64_t code :
         {infinity - 1, infinity + 1, all / 2, all, all - 1, all / 2 - 1})
        result.push_back(code);
    return result;
}

// Mostly moderate numbers, for which the order of operations matters; sometimes a special one.
inline std::vector<char> random_elements(std::mt19937_64 &random, vescomm_type_t type,
                                         std::size_t count) {
    if (is_complex(type)) return random_elements(random, part_of(type), 2 * count);
    const std::vector<std::uint64_t> specials = special_bits(type);
    std::vector<char> bytes(count * size_of(type));
    for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t bits = random();
        if (random() % 50 == 0) {
            bits = specials[random() % specials.size()];
        } else if (is_float(type)) {
            const double x = std::ldexp(static_cast<double>(bits % 4096) - 2048,
                                        -11 - static_cast<int>(random() % 12));
            bits = float_bits(type, x * (1 + static_cast<double>(random() % 999) * 1e-4));
        }
        set_bits(bytes.data(), type, i, bits);
    }
    return bytes;
}

inline std::vector<const Kernels *> all_kernels() {
    std::vector<const Kernels *> result;
    for (const Kernels &kernel : supported_kernels()) result.push_back(&kernel);
    return result;
}

inline std::string test_name(const testing::TestParamInfo<const Kernels *> &info) {
    std::string name = info.param->isa;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

class KernelsOf : public testing::TestWithParam<const Kernels *> {
protected:
    const Kernels &kernel = *GetParam();
};

}  // namespace vescomm::internal
