// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gpu/kernels/parameters.h"
#include "gpu/kernels/slabs.h"

#if !defined(__CUDACC__)
#include <sched.h>
#endif

// A block of a kernel meets the block of the same number of every rank, by flags in their memory.
// Flags count meetings and only rise, so a graph can be launched again.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Writes a flag that another GPU reads, after all earlier writes.
VESCOMM_INLINE void store_release(std::uint32_t *flag, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
#else
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
#endif
}

// Reads a flag that another GPU writes, before all later reads.
VESCOMM_INLINE std::uint32_t load_acquire(const std::uint32_t *flag) {
#if defined(__CUDA_ARCH__)
    std::uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
#else
    sched_yield();
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
#endif
}

struct MeetingShared {
    std::uint32_t epoch;  // meetings of this block before this launch
    // A wait was ended, of this kernel or of an earlier one: the data of other ranks may not be
    // there, and that of this rank may be wrong. The block then meets no rank any more.
    int ended;
};

struct Meeting {
#if defined(__CUDACC__)
    static constexpr std::uint32_t turns_between_looks = 4096;  // a few milliseconds
#else
    static constexpr std::uint32_t turns_between_looks = 1;
#endif

    // Reads the count of meetings. The threads of the block wait for this phase.
    VESCOMM_INLINE void begin(const gpu_kernel::PeerBarrier &barrier, MeetingShared &shared,
                              unsigned block, unsigned thread) {
        if (thread != 0) return;
        shared.epoch = barrier.epochs[block];
        shared.ended = static_cast<int>(mark(barrier, block));
    }
    // Ends the phases, after `meetings` of this block.
    VESCOMM_INLINE void end(const gpu_kernel::PeerBarrier &barrier, const MeetingShared &shared,
                            std::uint32_t meetings, unsigned block, unsigned thread) {
        if (thread != 0) return;
        if (shared.ended != 0) mark(barrier, block) = 1;
        else barrier.epochs[block] = shared.epoch + meetings;
    }
    // Not 0: a wait of the block was ended.
    VESCOMM_INLINE std::uint32_t &mark(const gpu_kernel::PeerBarrier &barrier, unsigned block) {
        return barrier.epochs[gpu_kernel::max_peer_blocks + block];
    }
    // The flag of a rank in the memory of another one.
    VESCOMM_INLINE std::uint32_t *flag(const gpu_kernel::PeerBarrier &barrier, int at, int of,
                                       unsigned block) {
        return barrier.flags[at] + static_cast<std::int64_t>(block) * barrier.ranks + of;
    }
    VESCOMM_INLINE void signal(const gpu_kernel::PeerBarrier &barrier, const MeetingShared &shared,
                               std::uint32_t epoch, unsigned block, unsigned thread) {
        const int peer = static_cast<int>(thread);
        if (shared.ended == 0 && peer < barrier.ranks && peer != barrier.rank)
            store_release(flag(barrier, peer, barrier.rank, block), epoch);
    }
    VESCOMM_INLINE void wait(const gpu_kernel::PeerBarrier &barrier, MeetingShared &shared,
                             std::uint32_t epoch, unsigned block, unsigned thread) {
        const int peer = static_cast<int>(thread);
        if (shared.ended != 0 || peer >= barrier.ranks || peer == barrier.rank) return;
        const std::uint32_t *const own = flag(barrier, barrier.rank, peer, block);
        // The difference stays right when the count of meetings overflows. The word of the host is
        // far: many threads that read it all the time slow the links down.
        for (std::uint32_t turn = 1; static_cast<std::int32_t>(load_acquire(own) - epoch) < 0;
             ++turn) {
            if (turn % turns_between_looks != 0 || load_acquire(barrier.end) == 0) continue;
            set_flag(&shared.ended);
            return;
        }
    }
};

// A meeting of all ranks as a kernel of one block: copies on the stream before it are complete on
// every rank when it ends.
struct PeerMeet {
    using Parameters = gpu_kernel::PeerMeeting;
    using Shared = MeetingShared;
    static constexpr int phases = 4;

    VESCOMM_INLINE void run(int phase, const Parameters &p, Shared &shared, unsigned block,
                            unsigned thread) {
        switch (phase) {
            case 0:
                return Meeting::begin(p.barrier, shared, block, thread);
            case 1:
                return Meeting::signal(p.barrier, shared, shared.epoch + 1, block, thread);
            case 2:
                return Meeting::wait(p.barrier, shared, shared.epoch + 1, block, thread);
            default:
                return Meeting::end(p.barrier, shared, 1, block, thread);
        }
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
