// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Launches of kernels on pieces of slabs.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/device_kernels.h"
#include "gpu/kernel_library.h"
#include "gpu/kernels/parameters.h"

namespace vescomm::internal::device {

inline constexpr std::int64_t tiles_of(std::int64_t elements,
                                       int tile = gpu_kernel::tile_elements) {
    return (elements + tile - 1) / tile;
}

// The parameters of the kernel for f32 among those for other types.
template <typename Parameters>
auto &step_of(Parameters &parameters) {
    if constexpr (requires { parameters.wide; }) return parameters.wide;
    else return parameters;
}

// The slabs of a call, without pieces.
template <typename Parameters>
gpu_kernel::Slabs &slabs_of(Parameters &parameters) {
    if constexpr (std::is_same_v<Parameters, gpu_kernel::Slabs>) return parameters;
    else return step_of(parameters).slabs;
}

// Puts kernels on a stream, up to max_pieces pieces that have elements in each. `factor` multiplies
// offsets and counts. `tile`: elements of a tile. Calls launch(tiles) for the pieces in
// `parameters`.
template <typename Parameters, typename Launch>
void divide_pieces(Parameters &parameters, Pieces pieces, std::int64_t factor, int tile,
                   const Launch &launch) {
    gpu_kernel::Slabs &slabs = slabs_of(parameters);
    std::int64_t tiles = 0;
    const auto end = [&] {
        if (slabs.pieces > 0) launch(tiles);
        slabs.pieces = 0;
        tiles = 0;
    };
    for (const vescomm_gpu_piece_t &piece : pieces) {
        if (piece.count == 0) continue;
        slabs.piece[slabs.pieces] = {piece.target * factor, piece.source * factor,
                                     piece.count * factor};
        tiles += tiles_of(piece.count * factor, tile);
        slabs.first_tile[0] = 0;
        slabs.first_tile[++slabs.pieces] = static_cast<std::uint32_t>(tiles);
        if (slabs.pieces == gpu_kernel::max_pieces) end();
    }
    end();
}

// Launches a kernel whose blocks have a tile each.
template <typename Parameters>
void launch_pieces(Kernel kernel, Parameters parameters, Pieces pieces, cuda::Stream stream,
                   std::int64_t factor = 1, int tile = gpu_kernel::tile_elements) {
    const KernelLibrary &library = kernel_library();
    divide_pieces(parameters, pieces, factor, tile,
                  [&](std::int64_t tiles) { library.launch(kernel, tiles, &parameters, stream); });
}

inline gpu_kernel::Slabs slabs(void *target, vescomm_type_t target_type,
                               const void *source = nullptr, vescomm_type_t source_type = 0) {
    gpu_kernel::Slabs made{};
    made.target = target;
    made.source = source;
    made.target_type = target_type;
    made.source_type = source_type;
    return made;
}

}  // namespace vescomm::internal::device
