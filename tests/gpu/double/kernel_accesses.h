// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The bytes that the kernels of vescomm access, by their parameters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "gpu/double/gpu_double.h"
#include "gpu/kernels/parameters.h"

namespace gpu_double {

namespace gpu_kernel = vescomm::internal::gpu_kernel;
using Accesses = std::vector<Access>;

inline std::size_t bytes_of_type(int type) {
    switch (type) {
        case VESCOMM_F64:
        case VESCOMM_I64:
        case VESCOMM_U64:
            return 8;
        case VESCOMM_F32:
        case VESCOMM_I32:
        case VESCOMM_U32:
            return 4;
        case VESCOMM_F8E4M3:
        case VESCOMM_F8E5M2:
        case VESCOMM_I8:
        case VESCOMM_U8:
            return 1;
        default:
            return 2;
    }
}

inline void add_access(Accesses &all, const void *base, std::int64_t first, std::int64_t count,
                       std::size_t element, bool write) {
    const auto size = static_cast<std::int64_t>(element);
    all.push_back({static_cast<const char *>(base) + first * size,
                   static_cast<std::size_t>(count * size), write});
}

// The pieces of the target, and of the source if there is one.
inline void add_slabs(Accesses &all, const gpu_kernel::Slabs &slabs, bool writes) {
    for (int k = 0; k < slabs.pieces; ++k) {
        const vescomm_gpu_piece_t &piece = slabs.piece[k];
        if (slabs.source != nullptr)
            add_access(all, slabs.source, piece.source, piece.count,
                       bytes_of_type(slabs.source_type), false);
        add_access(all, slabs.target, piece.target, piece.count, bytes_of_type(slabs.target_type),
                   writes);
    }
}

inline Accesses accesses_of(const gpu_kernel::Slabs &p) {
    Accesses all;
    add_slabs(all, p, true);
    return all;
}

inline Accesses accesses_of(const gpu_kernel::Elementwise &p) {
    Accesses all = accesses_of(p.slabs);
    if (p.overflow != nullptr) add_access(all, p.overflow, 0, 1, 4, true);
    return all;
}

inline Accesses accesses_of(const gpu_kernel::Squares &p) {
    Accesses all;
    add_slabs(all, p.slabs, false);
    add_access(all, p.words, 0, VESCOMM_GPU_SUM_WORDS, 8, true);
    return all;
}

inline Accesses accesses_of(const gpu_kernel::Clip &p) {
    Accesses all;
    add_access(all, p.words, 0, VESCOMM_GPU_SUM_WORDS, 8, true);
    add_access(all, p.result, 0, 1, sizeof *p.result, true);
    return all;
}

inline Accesses accesses_of(const gpu_kernel::AdamW &p) {
    Accesses all = accesses_of(p.slabs);
    for (int k = 0; k < p.slabs.pieces; ++k) {
        const vescomm_gpu_piece_t &piece = p.slabs.piece[k];
        add_access(all, p.m, piece.target, piece.count, sizeof(float), true);
        add_access(all, p.v, piece.target, piece.count, sizeof(float), true);
    }
    if (p.clip != nullptr) add_access(all, p.clip, 0, 1, sizeof *p.clip, false);
    return all;
}

inline Accesses accesses_of(const gpu_kernel::Sgd &p) {
    Accesses all = accesses_of(p.slabs);
    for (int k = 0; k < p.slabs.pieces && p.momentum != nullptr; ++k)
        add_access(all, p.momentum, p.slabs.piece[k].target, p.slabs.piece[k].count, sizeof(float),
                   true);
    if (p.clip != nullptr) add_access(all, p.clip, 0, 1, sizeof *p.clip, false);
    return all;
}

inline std::int64_t scale_count(std::int64_t count, std::int64_t block) {
    return (count + block - 1) / block;
}

inline Accesses accesses_of(const gpu_kernel::Adam8bit &p) {
    Accesses all = accesses_of(p.slabs);
    std::int64_t blocks = 0;
    for (int k = 0; k < p.slabs.pieces; ++k) {
        const vescomm_gpu_piece_t &piece = p.slabs.piece[k];
        add_access(all, p.m, piece.target, piece.count, 1, true);
        add_access(all, p.v, piece.target, piece.count, 1, true);
        blocks += scale_count(piece.count, gpu_kernel::moment_block);
    }
    add_access(all, p.m_scales, 0, blocks, sizeof(float), true);
    add_access(all, p.v_scales, 0, blocks, sizeof(float), true);
    if (p.clip != nullptr) add_access(all, p.clip, 0, 1, sizeof *p.clip, false);
    return all;
}

template <typename Step>
Accesses accesses_of(const gpu_kernel::Narrow<Step> &p) {
    return accesses_of(p.wide);
}

inline Accesses accesses_of(const gpu_kernel::Quantise &p) {
    Accesses all;
    add_access(all, p.from, 0, p.count, bytes_of_type(p.type), false);
    add_access(all, p.codes, 0, p.count, 1, true);
    add_access(all, p.scales, 0, scale_count(p.count, p.block), sizeof(float), true);
    return all;
}

inline Accesses accesses_of(const gpu_kernel::Dequantise &p) {
    Accesses all;
    add_access(all, p.codes, 0, p.count, 1, false);
    add_access(all, p.scales, 0, scale_count(p.count, p.block), sizeof(float), false);
    add_access(all, p.to, 0, p.count, bytes_of_type(p.type), true);
    return all;
}

inline Accesses accesses_of(const gpu_kernel::SumQuantised &p) {
    Accesses all;
    for (std::int32_t source = 0; source < p.sources; ++source) {
        add_access(all, p.codes + source * p.code_stride, 0, p.count, 1, false);
        add_access(all, p.scales + source * p.scale_stride, 0, scale_count(p.count, p.block),
                   sizeof(float), false);
    }
    add_access(all, p.to, 0, p.count, sizeof(float), true);
    return all;
}

// The flags are left out: other devices write them meanwhile.
inline Accesses accesses_of(const gpu_kernel::PeerBarrier &p) {
    Accesses all;
    add_access(all, p.epochs, 0, 2 * gpu_kernel::max_peer_blocks, sizeof *p.epochs, true);
    add_access(all, p.end, 0, 1, sizeof *p.end, false);
    return all;
}

// Only the memory of this rank: that of other ranks is accessed after a meeting.
inline Accesses accesses_of(const gpu_kernel::PeerReduce &p) {
    Accesses all = accesses_of(p.barrier);
    add_access(all, p.to, 0, p.count, bytes_of_type(p.type), true);
    return all;
}

inline Accesses accesses_of(const gpu_kernel::PeerGather &p) {
    Accesses all = accesses_of(p.barrier);
    for (int rank = 0; rank < p.barrier.ranks; ++rank)
        add_access(all, p.to[rank], 0, p.bytes[rank], 1, rank != p.barrier.rank);
    return all;
}

inline Accesses accesses_of(const gpu_kernel::PeerMeeting &p) {
    return accesses_of(p.barrier);
}

// The bytes of other ranks that a kernel reads between its two meetings.

inline Accesses accesses_between(const gpu_kernel::PeerReduce &p) {
    Accesses all;
    for (int rank = 0; rank < p.barrier.ranks; ++rank)
        if (rank != p.barrier.rank)
            add_access(all, p.from[rank], 0, p.count, bytes_of_type(p.type), false);
    return all;
}

inline Accesses accesses_between(const gpu_kernel::PeerGather &p) {
    Accesses all;
    for (int rank = 0; rank < p.barrier.ranks; ++rank)
        if (rank != p.barrier.rank) add_access(all, p.from[rank], 0, p.bytes[rank], 1, false);
    return all;
}

inline Accesses accesses_between(const gpu_kernel::PeerMeeting &) {
    return {};
}

// Replaces device addresses by those at which the host finds the bytes.

template <typename T>
void move_to_host(T *&address) {
    if (address == nullptr) return;
    address = static_cast<T *>(host_view(const_cast<std::remove_const_t<T> *>(address)));
}

inline void move_to_host(gpu_kernel::Slabs &p) {
    move_to_host(p.target);
    move_to_host(p.source);
}
inline void move_to_host(gpu_kernel::Elementwise &p) {
    move_to_host(p.slabs);
    move_to_host(p.overflow);
}
inline void move_to_host(gpu_kernel::Squares &p) {
    move_to_host(p.slabs);
    move_to_host(p.words);
}
inline void move_to_host(gpu_kernel::Clip &p) {
    move_to_host(p.words);
    move_to_host(p.result);
}
inline void move_to_host(gpu_kernel::AdamW &p) {
    move_to_host(p.slabs);
    move_to_host(p.m);
    move_to_host(p.v);
    move_to_host(p.clip);
}
inline void move_to_host(gpu_kernel::Sgd &p) {
    move_to_host(p.slabs);
    move_to_host(p.momentum);
    move_to_host(p.clip);
}
inline void move_to_host(gpu_kernel::Adam8bit &p) {
    move_to_host(p.slabs);
    move_to_host(p.m);
    move_to_host(p.v);
    move_to_host(p.m_scales);
    move_to_host(p.v_scales);
    move_to_host(p.clip);
}
template <typename Step>
void move_to_host(gpu_kernel::Narrow<Step> &p) {
    move_to_host(p.wide);
}
inline void move_to_host(gpu_kernel::Quantise &p) {
    move_to_host(p.from);
    move_to_host(p.codes);
    move_to_host(p.scales);
}
inline void move_to_host(gpu_kernel::SumQuantised &p) {
    move_to_host(p.codes);
    move_to_host(p.scales);
    move_to_host(p.to);
}
inline void move_to_host(gpu_kernel::PeerBarrier &p) {
    for (int rank = 0; rank < p.ranks; ++rank) move_to_host(p.flags[rank]);
    move_to_host(p.epochs);
}
inline void move_to_host(gpu_kernel::PeerMeeting &p) {
    move_to_host(p.barrier);
}
inline void move_to_host(gpu_kernel::PeerReduce &p) {
    move_to_host(p.barrier);
    for (int rank = 0; rank < p.barrier.ranks; ++rank) move_to_host(p.from[rank]);
    move_to_host(p.to);
}
inline void move_to_host(gpu_kernel::PeerGather &p) {
    move_to_host(p.barrier);
    for (int rank = 0; rank < p.barrier.ranks; ++rank) {
        move_to_host(p.from[rank]);
        move_to_host(p.to[rank]);
    }
}
inline void move_to_host(gpu_kernel::Dequantise &p) {
    move_to_host(p.codes);
    move_to_host(p.scales);
    move_to_host(p.to);
}

}  // namespace gpu_double
