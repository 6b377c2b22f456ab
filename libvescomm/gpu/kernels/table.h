// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// THE table of kernels: name, body. A kernel has one parameter, the Parameters of the body.
#define VESCOMM_GPU_KERNELS(X)               \
    X(zero, Zero)                            \
    X(copy, Copy)                            \
    X(cast, Cast)                            \
    X(scale, Scale)                          \
    X(unscale, Unscale)                      \
    X(add, Add)                              \
    X(add_squares, AddSquares)               \
    X(clip_factor, ClipFactor)               \
    X(quantise, QuantiseBlocks)              \
    X(dequantise, DequantiseBlocks)          \
    X(sum_quantised, SumQuantised)           \
    X(adamw, AdamWPieces)                    \
    X(adamw_narrow, NarrowAdamWPieces)       \
    X(sgd, SgdPieces)                        \
    X(sgd_narrow, NarrowSgdPieces)           \
    X(adam8bit, Adam8bitPieces)              \
    X(adam8bit_narrow, NarrowAdam8bitPieces) \
    X(peer_reduce, PeerReduce)               \
    X(peer_gather, PeerGather)               \
    X(peer_meet, PeerMeet)

// The symbol of a kernel. The number is incremented when the parameters of a kernel change, so that
// kernels in a file of another version are not found.
#define VESCOMM_GPU_KERNEL(name) vescomm_gpu_kernel_2_##name
