// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/kernels/body.h"

// The pieces of slabs, shared out among the blocks of a launch.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// The part of a piece that one block works on.
struct Tile {
    std::int64_t target, source;  // first elements in the slabs
    std::int64_t count;
};

template <int elements = gpu_kernel::tile_elements>
VESCOMM_INLINE Tile tile_of(const gpu_kernel::Slabs &slabs, unsigned block) {
    int piece = 0, end = slabs.pieces;  // the last piece that begins at or before the block
    while (piece + 1 < end) {
        const int middle = (piece + end) / 2;
        if (slabs.first_tile[middle] <= block) piece = middle;
        else end = middle;
    }
    const vescomm_gpu_piece_t &found = slabs.piece[piece];
    const std::int64_t begin =
        static_cast<std::int64_t>(block - slabs.first_tile[piece]) * elements;
    const std::int64_t left = found.count - begin;
    return {found.target + begin, found.source + begin, left < elements ? left : elements};
}

// Writes to[i] = map(from[i]) in the tile of the block.
template <typename To, typename From, typename Map>
VESCOMM_INLINE void map_tile(const gpu_kernel::Slabs &slabs, unsigned block, unsigned thread,
                             const Map &map) {
    constexpr int n = elements_of_run<To, From>;
    const Tile tile = tile_of(slabs, block);
    To *const to = static_cast<To *>(slabs.target) + tile.target;
    const From *const from = static_cast<const From *>(slabs.source) + tile.source;
    for_runs<n>(to, tile.count, thread, [&](std::int64_t first, int count) {
        typename Run<From, n>::Vector x;
        typename Run<To, n>::Vector y;
        Run<From, n>::load(&x, from + first, count);
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) y.at[k] = map(x.at[k]);
        Run<To, n>::store(to + first, y, count);
    });
}

// Writes to[i] = map(to[i]) in the tile of the block.
template <typename To, typename Map>
VESCOMM_INLINE void change_tile(const gpu_kernel::Slabs &slabs, unsigned block, unsigned thread,
                                const Map &map) {
    constexpr int n = elements_of_run<To>;
    const Tile tile = tile_of(slabs, block);
    To *const to = static_cast<To *>(slabs.target) + tile.target;
    using Vector = typename Run<To, n>::Vector;
    const auto load = [&](int first, int count) {
        Vector y;
        Run<To, n>::load(&y, to + first, count);
        return y;
    };
    const auto store = [&](Vector y, int first, int count) {
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) y.at[k] = map(y.at[k]);
        Run<To, n>::store(to + first, y, count);
    };
    for_two_runs<n>(to, tile.count, thread, load, store);
}

// Writes to[i] = map(to[i], from[i]) in the tile of the block.
template <typename To, typename From, typename Map>
VESCOMM_INLINE void combine_tile(const gpu_kernel::Slabs &slabs, unsigned block, unsigned thread,
                                 const Map &map) {
    constexpr int n = elements_of_run<To, From>;
    const Tile tile = tile_of(slabs, block);
    To *const to = static_cast<To *>(slabs.target) + tile.target;
    const From *const from = static_cast<const From *>(slabs.source) + tile.source;
    for_runs<n>(to, tile.count, thread, [&](std::int64_t first, int count) {
        typename Run<From, n>::Vector x;
        typename Run<To, n>::Vector y;
        Run<From, n>::load(&x, from + first, count);
        Run<To, n>::load(&y, to + first, count);
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) y.at[k] = map(y.at[k], x.at[k]);
        Run<To, n>::store(to + first, y, count);
    });
}

// Calls body(Element{}) for the type of floats.
template <typename Body>
VESCOMM_INLINE void with_float(std::int32_t type, const Body &body) {
    switch (type) {
        case VESCOMM_F32:
            return body(F32{});
        case VESCOMM_BF16:
            return body(Bf16{});
        case VESCOMM_F16:
            return body(F16{});
        case VESCOMM_F64:
            return body(F64{});
        case VESCOMM_F8E4M3:
            return body(F8e4m3{});
        case VESCOMM_F8E5M2:
            return body(F8e5m2{});
        default:
            return;
    }
}

// Calls body(value) with a value of an unsigned integer as large as the elements.
template <typename Body>
VESCOMM_INLINE void with_bits(std::int32_t type, const Body &body) {
    switch (type) {
        case VESCOMM_U8:
            return body(std::uint8_t{});
        case VESCOMM_U16:
            return body(std::uint16_t{});
        case VESCOMM_U32:
            return body(std::uint32_t{});
        case VESCOMM_U64:
            return body(std::uint64_t{});
        default:
            return;
    }
}

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
