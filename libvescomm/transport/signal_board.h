// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/deadline.h"
#include "transport/transport.h"

namespace vescomm {

// Counters that some ranks ("seats") raise and all of them watch, in memory that all of them map,
// and the doorbells by which a raiser wakes those who sleep. The memory must start out as zeros.
//
//     one line: how many sleep │ a doorbell for each seat │ for each channel and seat, one line of
//                              │                          │ flags_per_channel counters
//
// A raise is one store when nobody sleeps, and it does not wait until others see it: who wants to
// sleep makes sure, with a fence in every process of the board (membarrier). Threads: safe.
// Zone: per operation, no allocation; system calls only to sleep and to wake.
class SignalBoard {
public:
    static std::size_t bytes(int seats, std::uint32_t channels);

    // `wake` makes the wake descriptor of a seat readable; `wake_descriptor` is this seat's own.
    SignalBoard(std::byte *memory, int seats, std::uint32_t channels, int own_local_rank,
                int wake_descriptor, std::function<void(int local_rank)> wake);

    std::uint32_t channels() const noexcept { return channels_; }

    void raise(SignalName signal, std::uint64_t value) noexcept;
    // Wakes those who sleep, after the caller has stored elsewhere what they may wait for.
    void stored() noexcept;
    std::uint64_t value(int local_rank, SignalName signal) const noexcept;

    // Wakes one seat, whatever it sleeps on.
    void ring(int local_rank) noexcept;

    // To sleep: announce it, look once more whether there is something to do, then sleep until rung
    // (or the moment passes), and take the announcement back. Rings after begin_sleep() are not
    // lost.
    std::uint32_t begin_sleep() noexcept;
    void sleep(std::uint32_t seen, Clock::time_point until) noexcept;
    void end_sleep() noexcept;

    // The same for a thread that polls wake_descriptor() together with others.
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
        std::atomic<std::uint32_t> unfenced;  // seats that nobody else can fence
    };

    Header &header() const noexcept { return *reinterpret_cast<Header *>(memory_); }
    void announce() noexcept;
    Doorbell &doorbell(int local_rank) const noexcept;
    std::atomic<std::uint64_t> &counter(int local_rank, SignalName signal) const noexcept;

    std::byte *memory_;
    int seats_;
    std::uint32_t channels_;
    int own_local_rank_;
    int wake_descriptor_;
    std::function<void(int)> wake_;
};

}  // namespace vescomm
