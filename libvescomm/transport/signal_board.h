// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/deadline.h"
#include "transport/transport.h"

namespace vescomm::internal {

// Counters in memory that all ranks of a node map: each rank raises its own, and all ranks watch
// them. Each rank also has a doorbell by which raisers wake it. The memory must start as zeros.
//
//     one line: number of │ one doorbell │ for each channel and local rank, one line of
//     sleeping threads    │ per rank     │ flags_per_channel counters
//
// A raise is one store while no thread sleeps, and does not wait until other ranks see it. A thread
// that is about to sleep executes a fence in every process of the board instead (membarrier).
// Threads: safe.
// Zone: per operation, no allocation; system calls only to sleep and to wake.
class SignalBoard {
public:
    static std::size_t bytes(int local_ranks, std::uint32_t channels);

    // `wake` makes the wake descriptor of a rank readable; `wake_descriptor` is this rank's own.
    SignalBoard(std::byte *memory, int local_ranks, std::uint32_t channels, int own_local_rank,
                int wake_descriptor, std::function<void(int local_rank)> wake);

    std::uint32_t channels() const noexcept { return channels_; }

    void raise(SignalName signal, std::uint64_t value) noexcept {
        counter(own_local_rank_, signal).store(value, std::memory_order_release);
        stored();
    }
    // The counter of this rank behind a signal, for stores that are followed by stored().
    std::atomic<std::uint64_t> &own(SignalName signal) const noexcept {
        return counter(own_local_rank_, signal);
    }
    // Wakes sleeping threads after the caller has stored elsewhere what they may wait for.
    //
    // The raiser stores, then loads the number of sleepers. The sleeper stores that it sleeps,
    // fences all threads, then loads the counters. If the raiser has not executed its store when
    // the fence runs, its later load sees the sleeper. If it has, the sleeper sees the counter. If
    // some process cannot be fenced, raisers execute the fence themselves.
    void stored() noexcept {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (header().unfenced.load(std::memory_order_relaxed) > 0) [[unlikely]]
            std::atomic_thread_fence(std::memory_order_seq_cst);
        if (header().asleep.load(std::memory_order_relaxed) != 0) [[unlikely]]
            ring_others();
    }
    std::uint64_t value(int local_rank, SignalName signal) const noexcept {
        return counter(local_rank, signal).load(std::memory_order_acquire);
    }

    // This rank gives up while others of the node may still read its memory, and is about to return
    // that memory to its program. A rank that has read it completes nothing any more: whatever it
    // has read before withdrawn() is false was intact.
    void withdraw() noexcept;
    bool withdrawn() const noexcept {
        std::atomic_thread_fence(std::memory_order_acquire);
        return header().withdrawn.load(std::memory_order_relaxed) != 0;
    }

    // Wakes the threads of one rank, whatever they sleep on.
    void ring(int local_rank) noexcept;

    // To sleep: begin_sleep(), check once more for work, sleep() until rung or until the given
    // time, end_sleep(). Rings after begin_sleep() are not lost.
    std::uint32_t begin_sleep() noexcept;
    void sleep(std::uint32_t seen, Clock::time_point until) noexcept;
    void end_sleep() noexcept;

    // The equivalent for a thread that polls wake_descriptor() together with other descriptors.
    int wake_descriptor() const noexcept { return wake_descriptor_; }
    void begin_poll() noexcept;
    void end_poll() noexcept;

private:
    struct alignas(64) Doorbell {
        std::atomic<std::uint32_t> rings;
        std::atomic<std::uint32_t> sleeping;
        std::atomic<std::uint32_t> polling;
    };
    struct alignas(64) Header {
        std::atomic<std::uint32_t> asleep;
        std::atomic<std::uint32_t> unfenced;  // number of ranks that cannot be fenced by others
        std::atomic<std::uint32_t> withdrawn;  // not 0: a rank has withdrawn
    };

    Header &header() const noexcept { return *reinterpret_cast<Header *>(memory_); }
    void announce() noexcept;
    void ring_others() noexcept;
    Doorbell &doorbell(int local_rank) const noexcept;
    std::atomic<std::uint64_t> &counter(int local_rank, SignalName signal) const noexcept {
        const std::size_t line =
            1 + static_cast<std::size_t>(local_ranks_) * (1 + std::size_t{signal.channel}) +
            static_cast<std::size_t>(local_rank);
        return *reinterpret_cast<std::atomic<std::uint64_t> *>(memory_ + 64 * line +
                                                               8 * signal.flag);
    }

    std::byte *memory_;
    int local_ranks_;
    std::uint32_t channels_;
    int own_local_rank_;
    int wake_descriptor_;
    std::function<void(int)> wake_;
};

}  // namespace vescomm::internal
