// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "execute/loops/adamw_element.h"
#include "execute/loops/sgd_step.h"
#include "vescomm/gpu_kernels.h"

// The parameters of the kernels, which a launch copies. Addresses are device addresses.
namespace vescomm::internal::gpu_kernel {

inline constexpr int threads = 256;  // of a block
inline constexpr int access_bytes = 16;  // of one thread in one instruction, at most
inline constexpr int tile_elements = 8192;  // elements of one block
// The same for sums of squares, where a block has to add the sums of its threads.
inline constexpr int summed_elements = 32768;

// All parameters of a kernel have at most 4096 bytes.
inline constexpr int max_pieces = 128;

// Elements of a block of moments in 8 bits, and such blocks of one block of threads.
inline constexpr int moment_block = VESCOMM_GPU_MOMENT_BLOCK, moment_blocks = 16;

// Blocks of codes of one block of threads.
inline constexpr int max_code_blocks = 1024;
// Elements that quantise reads twice in a block of threads, if blocks of codes are smaller: few, so
// that those of all running blocks are in the cache of the GPU.
inline constexpr int quantised_elements = 4096;

// Pieces of two slabs, for one launch. Each block has a tile of one piece.
struct Slabs {
    void *target;
    const void *source;  // nullptr: the operation has none
    std::int32_t target_type, source_type;  // vescomm_type_t
    std::int32_t pieces;
    std::uint32_t first_tile[max_pieces + 1];  // the last one used is the number of tiles
    vescomm_gpu_piece_t piece[max_pieces];
};

// zero, copy, cast and add use the slabs alone.
struct Elementwise {
    Slabs slabs;
    double factor;  // scale and unscale
    std::int32_t *overflow;  // unscale
};

// Adds the squares of the elements of the target to the words of an exact sum.
struct Squares {
    Slabs slabs;
    std::int64_t *words;
};

struct Clip {
    std::int64_t *words;
    double scale, max_norm;
    vescomm_gpu_clip_t *result;
};

// The target of the slabs is the parameters, the source the gradients.
struct AdamW {
    Slabs slabs;
    float *m, *v;
    const vescomm_gpu_clip_t *clip;  // nullptr: none
    vescomm_adamw_t step;
};

// The slabs are those of AdamW.
struct Sgd {
    Slabs slabs;
    float *momentum;  // nullptr: none
    const vescomm_gpu_clip_t *clip;
    SgdStep step;
};

// The slabs are those of AdamW. Their tiles are blocks of moments, whose scales follow one another.
struct Adam8bit {
    Slabs slabs;
    std::uint8_t *m, *v;
    float *m_scales, *v_scales;
    const vescomm_gpu_clip_t *clip;
    vescomm_adamw_t step;
};

// A step on parameters in the type of the target: bf16 or f16.
template <typename Step>
struct Narrow {
    Step wide;
    std::uint64_t random_stream;
    std::uint64_t random_first;  // number of element 0 of the target in the stream
    std::int32_t stochastic;  // 0: rounds to the nearest
};

struct Quantise {
    const void *from;
    std::uint8_t *codes;
    float *scales;
    std::int64_t count, block;
    std::int32_t block_count;  // blocks of elements of one block of threads
    std::int32_t code_type, type;
};

struct Dequantise {
    const std::uint8_t *codes;
    const float *scales;
    void *to;
    std::int64_t count, block;
    std::int32_t code_type, type;
};

struct SumQuantised {
    const std::uint8_t *codes;
    const float *scales;
    float *to;
    std::int64_t code_stride, scale_stride;  // elements from a source to the next one
    std::int64_t count, block;
    float factor;
    std::int32_t sources, code_type;
    std::int32_t add;  // 0: overwrites
};

// Limits of the kernels that read the memory of other ranks.
inline constexpr int max_peers = 72;  // ranks; the largest NVLink domain
inline constexpr int max_peer_blocks = 64;
inline constexpr int peer_tile_elements = 2048;

// How the blocks of the ranks meet. Addresses are device addresses of this rank.
struct PeerBarrier {
    // Memory of each rank: for each block a flag of each rank.
    std::uint32_t *flags[max_peers];
    // For each block its meetings so far, and behind them for each block a mark that its waits were
    // ended.
    std::uint32_t *epochs;
    const std::uint32_t *end;  // in host memory; not 0: all waits end
    std::int32_t ranks, rank;
};

// A meeting without a collective, for copies of the copy engines.
struct PeerMeeting {
    PeerBarrier barrier;
};

// The shard of this rank, in the memory of each rank.
struct PeerReduce {
    PeerBarrier barrier;
    const void *from[max_peers];
    void *to;
    std::int64_t count;
    double scale;  // multiplies sums of floats
    std::int32_t type, op;
    std::uint32_t blocks;
};

// The shard of each rank, in its memory and in that of this rank.
struct PeerGather {
    PeerBarrier barrier;
    const void *from[max_peers];
    void *to[max_peers];
    std::int64_t bytes[max_peers];
    std::uint32_t blocks;
};

static_assert(sizeof(PeerReduce) <= 4096 && sizeof(PeerGather) <= 4096);
static_assert(sizeof(Narrow<AdamW>) <= 4096 && sizeof(Narrow<Sgd>) <= 4096 &&
              sizeof(Narrow<Adam8bit>) <= 4096 && sizeof(Elementwise) <= 4096 &&
              sizeof(Squares) <= 4096);

}  // namespace vescomm::internal::gpu_kernel
