// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/operators.h"
#include "gpu/kernels/meeting.h"
#include "gpu/kernels/slabs.h"

// Ragged collectives by one kernel of each rank, which reads the memory of the other ranks.
//
//     signal ─► wait for all ranks ─► body ─► signal ─► wait for all ranks
//
// Each block meets the same block of every rank: before the body, because the data of a rank is
// complete when its kernel runs; after it, because a rank may overwrite its data when its kernel
// has ended. Flags count meetings and only rise, so a graph can be launched again.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// A collective whose body is Collective::body(parameters, block, thread).
template <typename Collective>
struct Peers {
    using Parameters = typename Collective::Parameters;
    using Shared = MeetingShared;
    static constexpr int phases = 7;

    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        const gpu_kernel::PeerBarrier &barrier = p.barrier;
        switch (phase) {
            case 0:
                return Meeting::begin(barrier, shared, block, thread);
            case 1:
                return Meeting::signal(barrier, shared, shared.epoch + 1, block, thread);
            case 2:
                return Meeting::wait(barrier, shared, shared.epoch + 1, block, thread);
            case 3:
                if (shared.ended == 0) Collective::body(p, block, thread);
                return;
            case 4:
                return Meeting::signal(barrier, shared, shared.epoch + 2, block, thread);
            case 5:
                return Meeting::wait(barrier, shared, shared.epoch + 2, block, thread);
            default:
                return Meeting::end(barrier, shared, 2, block, thread);
        }
    }
};

// Reduces this rank's shard of all ranks, in their order: with the bits of host memory.
struct PeerReduceBody {
    using Parameters = gpu_kernel::PeerReduce;

    VESCOMM_INLINE void body(const Parameters &p, unsigned block, unsigned thread) {
        switch (p.type) {
            case VESCOMM_F32:
                return floats<F32>(p, block, thread);
            case VESCOMM_F64:
                return floats<F64>(p, block, thread);
            case VESCOMM_BF16:
                return floats<Bf16>(p, block, thread);
            case VESCOMM_F16:
                return floats<F16>(p, block, thread);
            case VESCOMM_I8:
                return integers<std::int8_t>(p, block, thread);
            case VESCOMM_U8:
                return integers<std::uint8_t>(p, block, thread);
            case VESCOMM_I32:
                return integers<std::int32_t>(p, block, thread);
            case VESCOMM_U32:
                return integers<std::uint32_t>(p, block, thread);
            case VESCOMM_I64:
                return integers<std::int64_t>(p, block, thread);
            default:
                return integers<std::uint64_t>(p, block, thread);
        }
    }

    template <typename Element>
    VESCOMM_INLINE void floats(const Parameters &p, unsigned block, unsigned thread) {
        using Storage = typename Element::Storage;
        using Wide = decltype(Element::widen(Storage{}));
        const auto widen = [](Storage x) { return Element::widen(x); };
        const Wide scale = static_cast<Wide>(p.scale);
        if (p.op == VESCOMM_SUM)
            return fold<Sum, Storage>(p, block, thread, widen,
                                      [=](Wide x) { return Element::narrow(scale * x); });
        with_other_operator<Storage>(p, block, thread, widen,
                                     [](Wide x) { return Element::narrow(x); });
    }
    template <typename Storage>
    VESCOMM_INLINE void integers(const Parameters &p, unsigned block, unsigned thread) {
        const auto same = [](Storage x) { return x; };
        if (p.op == VESCOMM_SUM) return fold<Sum, Storage>(p, block, thread, same, same);
        with_other_operator<Storage>(p, block, thread, same, same);
    }
    template <typename Storage, typename Widen, typename Narrow>
    VESCOMM_INLINE void with_other_operator(const Parameters &p, unsigned block, unsigned thread,
                                            const Widen &widen, const Narrow &narrow) {
        if (p.op == VESCOMM_PROD) fold<Product, Storage>(p, block, thread, widen, narrow);
        else if (p.op == VESCOMM_MIN) fold<Minimum, Storage>(p, block, thread, widen, narrow);
        else fold<Maximum, Storage>(p, block, thread, widen, narrow);
    }

    template <typename Op, typename Storage, typename Widen, typename Narrow>
    VESCOMM_INLINE void fold(const Parameters &p, unsigned block, unsigned thread,
                             const Widen &widen, const Narrow &narrow) {
        using Wide = decltype(widen(Storage{}));
        constexpr int n = elements_of_run<Storage>;
        constexpr int together = 4;  // ranks whose elements are loaded before they are folded
        const int ranks = p.barrier.ranks;
        Storage *const to = static_cast<Storage *>(p.to);
        for_tiles(p.count, p.blocks, block, [&](std::int64_t tile, std::int64_t count) {
            for_runs<n>(to + tile, count, thread, [&](std::int64_t first, int elements) {
                typename Run<Storage, n>::Vector x[together];
                Wide sum[n];
                const auto load = [&](int k, int rank) {
                    const auto *from = static_cast<const Storage *>(p.from[rank]) + tile + first;
                    Run<Storage, n>::load(x + k, from, elements);
                };
                const auto add = [&](int k) {
                    VESCOMM_UNROLL
                    for (int i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], widen(x[k].at[i]));
                };
                load(0, 0);
                VESCOMM_UNROLL
                for (int i = 0; i < n; ++i) sum[i] = widen(x[0].at[i]);
                int rank = 1;
                for (; rank + together <= ranks; rank += together) {
                    VESCOMM_UNROLL
                    for (int k = 0; k < together; ++k) load(k, rank + k);
                    VESCOMM_UNROLL
                    for (int k = 0; k < together; ++k) add(k);
                }
                for (; rank < ranks; ++rank) {
                    load(0, rank);
                    add(0);
                }
                VESCOMM_UNROLL
                for (int i = 0; i < n; ++i) x[0].at[i] = narrow(sum[i]);
                Run<Storage, n>::store(to + tile + first, x[0], elements);
            });
        });
    }

    // Calls body(first element, elements) for the tiles of a block.
    template <typename Body>
    VESCOMM_INLINE void for_tiles(std::int64_t count, unsigned blocks, unsigned block,
                                  const Body &body) {
        constexpr std::int64_t tile = gpu_kernel::peer_tile_elements;
        for (std::int64_t first = block * tile; first < count; first += blocks * tile)
            body(first, count - first < tile ? count - first : tile);
    }
};

// Copies the shards of all other ranks. Each rank begins with the next one, so that not all read
// the same memory at a time.
struct PeerGatherBody {
    using Parameters = gpu_kernel::PeerGather;

    VESCOMM_INLINE void body(const Parameters &p, unsigned block, unsigned thread) {
        constexpr int n = elements_of_run<std::uint8_t>;
        constexpr std::int64_t tile = gpu_kernel::peer_tile_elements * 4;
        for (int k = 1; k < p.barrier.ranks; ++k) {
            const int rank = (p.barrier.rank + k) % p.barrier.ranks;
            const std::uint8_t *const from = static_cast<const std::uint8_t *>(p.from[rank]);
            std::uint8_t *const to = static_cast<std::uint8_t *>(p.to[rank]);
            const std::int64_t bytes = p.bytes[rank];
            for (std::int64_t first = block * tile; first < bytes; first += p.blocks * tile) {
                const std::int64_t left = bytes - first;
                for_two_runs<n>(
                    to + first, left < tile ? left : tile, thread,
                    [&](std::int64_t at, int count) {
                        typename Run<std::uint8_t, n>::Vector x;
                        Run<std::uint8_t, n>::load(&x, from + first + at, count);
                        return x;
                    },
                    [&](const typename Run<std::uint8_t, n>::Vector &x, std::int64_t at,
                        int count) { Run<std::uint8_t, n>::store(to + first + at, x, count); });
            }
        }
    }
};

using PeerReduce = Peers<PeerReduceBody>;
using PeerGather = Peers<PeerGatherBody>;

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
