// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "execute/loops/vectorise.h"

// Random bits that are a function of a stream and of the number of an element: word i of a stream,
// SplitMix64 entered at i, has those of elements 4 i to 4 i + 3, 16 each, from the lowest bits on.
// For the loops of fsdp/optimizers and for the kernels of gpu/kernels. All functions have internal
// linkage.
//
// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
namespace vescomm::internal {
namespace {

// 2^64 / the golden ratio, and the last function of SplitMix64.
constexpr std::uint64_t stream_gamma = 0x9e3779b97f4a7c15;
VESCOMM_INLINE constexpr std::uint64_t mix_bits(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

VESCOMM_INLINE constexpr std::uint64_t random_word(std::uint64_t stream, std::uint64_t word) {
    // Elements are counted modulo 2^64, so words are modulo 2^62.
    return mix_bits(stream + stream_gamma * ((word & 0x3fffffffffffffff) + 1));
}

// The bits of four elements from any one on: `first` has the lowest 16.
VESCOMM_INLINE constexpr std::uint64_t random_bits(std::uint64_t stream, std::uint64_t first) {
    const std::uint64_t word = random_word(stream, first / 4);
    const unsigned skipped = static_cast<unsigned>(first % 4) * 16;
    if (skipped == 0) return word;
    return word >> skipped | random_word(stream, first / 4 + 1) << (64 - skipped);
}

}  // namespace
}  // namespace vescomm::internal
