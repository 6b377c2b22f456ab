// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Arrays of any type on the test double, and pieces, for tests of kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "execute/kernels.h"
#include "gpu/double_ranks.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::internal::testing_support {

using Bytes = std::vector<std::uint8_t>;
using PieceList = std::vector<vescomm_gpu_piece_t>;
using gpu_double::Device;
using gpu_double::take_violations;

constexpr vescomm_type_t float_types[] = {VESCOMM_F32, VESCOMM_BF16,   VESCOMM_F16,
                                          VESCOMM_F64, VESCOMM_F8E4M3, VESCOMM_F8E5M2};

// Elements of any bits: among them are infinities, NaNs with payload, subnormals and zeros.
inline Bytes any_bits(vescomm_type_t type, std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    Bytes bytes(count * size_of(type));
    for (std::uint8_t &byte : bytes) byte = static_cast<std::uint8_t>(random());
    return bytes;
}

// Floats of common magnitudes, for sums and products that round.
inline Bytes plain_floats(vescomm_type_t type, std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float &x : values) x = normal(random);
    Bytes bytes(count * size_of(type));
    kernels().convert(bytes.data(), type, values.data(), VESCOMM_F32, count);
    return bytes;
}

// Pieces of `count` elements with gaps: unaligned, empty, of one element, and longer than a tile.
// The source has the same pieces elsewhere.
inline PieceList ragged_pieces(std::int64_t count) {
    PieceList pieces;
    const std::int64_t lengths[] = {1, 0, 7, 8, 9, 257, 2048, 8192, 8193, 3};
    std::int64_t target = 3, source = 1;
    for (std::size_t k = 0; target < count; ++k) {
        const std::int64_t left = count - target;
        const std::int64_t length = lengths[k % std::size(lengths)];
        pieces.push_back({target, source, length < left ? length : left});
        target += length + static_cast<std::int64_t>(k % 3) * 5;
        source += length + 1;
    }
    return pieces;
}

// Elements that the sources of the pieces need.
inline std::size_t source_elements(const PieceList &pieces) {
    std::int64_t end = 1;
    for (const auto &piece : pieces) end = std::max(end, piece.source + piece.count);
    return static_cast<std::size_t>(end);
}

inline std::int64_t count_of(const PieceList &pieces) {
    return static_cast<std::int64_t>(pieces.size());
}

// Runs `body` with kernels in both orders of blocks and threads.
template <typename Body>
void in_both_orders(const Body &body) {
    for (const bool reversed : {false, true}) {
        SCOPED_TRACE(reversed ? "reversed" : "forwards");
        gpu_double::reverse_kernels(reversed);
        body();
    }
    gpu_double::reverse_kernels(false);
    EXPECT_EQ(take_violations(), "");
}

#define EXPECT_OK(call) EXPECT_EQ(call, VESCOMM_OK) << vescomm_get_last_error()

}  // namespace vescomm::internal::testing_support
