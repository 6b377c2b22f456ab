// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "execute/kernels.h"

// Plain code that says what kernels must compute, and what it takes to run each instruction set of
// this machine against it, in the manner of dav1d's checkasm. Everything is compared bit by bit.
namespace vescomm {

inline constexpr std::uint32_t quiet_nan = 0x7fc00000;
inline constexpr std::size_t most_shift = 33;  // elements; more than one 64-byte vector of bf16

inline std::size_t size_of(vescomm_type_t type) {
    return type == VESCOMM_F32 ? 4 : 2;
}

// `bytes` bytes at `shift` bytes after a multiple of 64, and a moat that must stay dry.
class Guarded {
public:
    explicit Guarded(std::size_t bytes, std::size_t shift = 0)
        : store_(bytes + shift + 3 * moat, filler), bytes_(bytes) {
        const auto address = reinterpret_cast<std::uintptr_t>(store_.data());
        start_ = (address + moat + moat - 1) / moat * moat - address + shift;
    }
    char *data() { return store_.data() + start_; }
    bool dry() const {
        const auto untouched = [](char c) { return c == filler; };
        return std::all_of(store_.begin(), store_.begin() + start_, untouched) &&
               std::all_of(store_.begin() + start_ + bytes_, store_.end(), untouched);
    }

private:
    static constexpr char filler = 0x5a;
    static constexpr std::size_t moat = 64;

    std::vector<char> store_;
    std::size_t bytes_;
    std::size_t start_;
};

inline float as_float(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

// The values of a 16-bit format by code, positive half; infinity is where the next one would be.
inline std::vector<double> magnitudes(int exponent_bits) {
    const int fraction_bits = 15 - exponent_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int infinity = ((1 << exponent_bits) - 1) << fraction_bits;
    std::vector<double> values;
    for (int code = 0; code <= infinity; ++code) {
        const int exponent = code >> fraction_bits;
        const int fraction = code & ((1 << fraction_bits) - 1);
        const int hidden = exponent > 0 ? 1 << fraction_bits : 0;
        values.push_back(
            std::ldexp(hidden + fraction, std::max(exponent, 1) - bias - fraction_bits));
    }
    return values;
}

inline const std::vector<double> &magnitudes_of(vescomm_type_t type) {
    static const std::vector<double> bf16 = magnitudes(8);
    static const std::vector<double> f16 = magnitudes(5);
    return type == VESCOMM_BF16 ? bf16 : f16;
}

// Nearest by search, the even code of two that are equally near.
inline std::uint16_t narrow(vescomm_type_t type, float x) {
    const std::vector<double> &values = magnitudes_of(type);
    if (std::isnan(x)) return type == VESCOMM_BF16 ? 0x7fc0 : 0x7e00;
    const double magnitude = std::fabs(x);
    const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
    std::size_t code = std::min<std::size_t>(above - values.begin(), values.size() - 1);
    if (code > 0) {
        const double up = values[code] - magnitude;
        const double down = magnitude - values[code - 1];
        if (down < up || (down == up && code % 2 == 1)) --code;
    }
    return static_cast<std::uint16_t>(code | (std::signbit(x) ? 0x8000 : 0));
}

inline float widen_bf16(std::uint16_t code) {
    return as_float(std::uint32_t{code} << 16);
}

inline float canonical(float x) {
    return std::isnan(x) ? as_float(quiet_nan) : x;
}

inline float load(const char *from, vescomm_type_t type, std::size_t i) {
    if (type == VESCOMM_F32) {
        float x;
        std::memcpy(&x, from + 4 * i, 4);
        return x;
    }
    std::uint16_t code;
    std::memcpy(&code, from + 2 * i, 2);
    return widen_bf16(code);
}

inline void store(char *to, vescomm_type_t type, std::size_t i, float x) {
    if (type == VESCOMM_F32) {
        x = canonical(x);
        std::memcpy(to + 4 * i, &x, 4);
    } else {
        const std::uint16_t code = narrow(VESCOMM_BF16, x);
        std::memcpy(to + 2 * i, &code, 2);
    }
}

// What may go wrong when added: NaNs with different payloads, infinities, signed zeros, subnormals,
// overflow, ties.
inline constexpr std::uint32_t special_bits[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007f0000, 0x00800000, 0x3f800000,
    0xbf800000, 0x3f808000, 0x3f818000, 0x7f7fffff, 0xff7fffff, 0x7f7f0000, 0x7f800000,
    0xff800000, 0x7fc00000, 0xffc12345, 0x7f812345, 0xff810000,
};
inline constexpr std::size_t specials = std::size(special_bits);

// Mostly moderate numbers, where the order of additions shows; sometimes a special one.
inline std::vector<char> random_elements(std::mt19937 &random, vescomm_type_t type,
                                         std::size_t count) {
    std::vector<char> bytes(count * size_of(type));
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = random() % 50 == 0
                                       ? special_bits[random() % specials]
                                       : (random() & 0x807fffff) | (110 + random() % 30) << 23;
        if (type == VESCOMM_F32) {
            std::memcpy(&bytes[4 * i], &bits, 4);
        } else {
            const auto code = static_cast<std::uint16_t>(bits >> 16);
            std::memcpy(&bytes[2 * i], &code, 2);
        }
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

}  // namespace vescomm
