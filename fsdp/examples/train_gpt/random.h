// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Counter-based random numbers: number `index` of a stream, for instance of (seed, unit, tensor),
// is the same on every rank and does not depend on earlier calls.
//
// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014: the
// streams are SplitMix64, which can be entered at any index.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace train_gpt {

class RandomStream {
public:
    // The use of the numbers. It separates streams that have the same seed.
    enum class Purpose : std::uint64_t { initial_value, position, sample };

    RandomStream(std::uint64_t seed, Purpose purpose,
                 std::initializer_list<std::uint64_t> name = {})
        : key_(mix(seed + gamma)) {
        key_ = mix(key_ + gamma * (static_cast<std::uint64_t>(purpose) + 1));
        for (const std::uint64_t part : name) key_ = mix(key_ + gamma * (part + 1));
    }

    std::uint64_t bits(std::uint64_t index) const { return mix(key_ + gamma * (index + 1)); }

    // In [0, bound). Not quite uniform: off by bound / 2^64.
    std::uint64_t below(std::uint64_t index, std::uint64_t bound) const {
        return bits(index) % bound;
    }

    // In [0, 1).
    double uniform(std::uint64_t index) const {
        return static_cast<double>(bits(index) >> 11) * 0x1p-53;
    }

    // Mean 0, variance 1, by Box and Muller. Half of each pair is not used, so that every index is
    // independent of the others. The absolute value is at most 5.8.
    float normal(std::uint64_t index) const {
        const std::uint64_t word = bits(index);
        const float radius = static_cast<float>((word >> 40) + 1) * 0x1p-24f;  // in (0, 1]
        const float angle = static_cast<float>(word & 0xffffff) * 0x1p-24f;
        return std::sqrt(-2 * std::log(radius)) * std::cos(2 * std::numbers::pi_v<float> * angle);
    }

private:
    static constexpr std::uint64_t gamma = 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio

    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }

    std::uint64_t key_;
};

}  // namespace train_gpt
