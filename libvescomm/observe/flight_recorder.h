// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace vescomm {

// Of the last tick of the system, some milliseconds ago: 3 ns, where the exact time costs 25.
// Nanoseconds.
std::int64_t real_time_of_last_tick() noexcept;

// The last operations of a communicator, always recorded: who looks for the cause of a hang has
// seldom switched anything on before. Ranks make the same calls in the same order, so what has one
// number on two ranks should be the same operation.
//
// Threads: one at a time writes; entries() from any, at any moment.
// Zone: per operation. A ring of fixed size, no allocation; three stores for the start, one for the
// end. A look at the clock costs more than all of them: of operations that take no time only some
// have one.
class FlightRecorder {
public:
    static constexpr std::uint64_t kept = 128;

    // `what` is the caller's word for the operation, below 2^63. Returns its number, from 1.
    // `long_enough`: it takes long enough for a look at the clock.
    std::uint64_t start(std::uint64_t what, bool long_enough) noexcept {
        constexpr std::uint64_t every = 16;
        const std::uint64_t number = last_.load(std::memory_order_relaxed) + 1;
        Slot &slot = slots_[number % places];
        slot.what.store(what, std::memory_order_relaxed);
        slot.started.store(long_enough || number % every == 0 ? real_time_of_last_tick() : 0,
                           std::memory_order_relaxed);
        last_.store(number, std::memory_order_release);
        return number;
    }
    // It takes longer than it should: the time of its start is now, unless that was noted.
    void takes_long(std::uint64_t number) noexcept;
    void complete(std::uint64_t number) noexcept {
        if (last_.load(std::memory_order_relaxed) - number >= places) return;
        std::atomic<std::uint64_t> &what = slots_[number % places].what;
        what.store(what.load(std::memory_order_relaxed) | done, std::memory_order_relaxed);
    }

    struct Entry {
        std::uint64_t number = 0;
        std::uint64_t what = 0;
        bool completed = false;
        std::int64_t started = 0;  // nanoseconds of the real time; 0: nobody looked
    };
    // Ascending.
    std::vector<Entry> entries() const;
    std::uint64_t started() const noexcept { return last_.load(std::memory_order_relaxed); }

private:
    // Twice as many as are kept: the oldest may be read while the newest is written.
    static constexpr std::uint64_t places = 2 * kept;
    static constexpr std::uint64_t done = std::uint64_t{1} << 63;

    struct Slot {
        std::atomic<std::uint64_t> what{0};
        std::atomic<std::int64_t> started{0};
    };

    std::array<Slot, places> slots_;
    std::atomic<std::uint64_t> last_{0};
};

}  // namespace vescomm
