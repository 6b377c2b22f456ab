// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace vescomm::internal {

// Real time of the last tick of the system clock, in nanoseconds. It is some milliseconds old.
// Reading it takes 3 ns; reading the exact time takes 25 ns.
std::int64_t real_time_of_last_tick() noexcept;

// Records the last operations of a communicator. Recording is always on: users who look for the
// cause of a hang have seldom switched anything on before. Ranks make the same calls in the same
// order, so the same number on two ranks should be the same operation.
//
// Threads: one writer at a time. entries() is safe from any thread at any time.
// Zone: per operation. A ring of fixed size, no allocation; three stores for the start, one for the
// end. Reading the clock costs more than all of them, so only some of the short operations have a
// time.
class FlightRecorder {
public:
    static constexpr std::uint64_t kept = 128;

    // Records the start of an operation and returns its number, from 1. `what` is the caller's
    // encoding of the operation, below 2^63. `long_enough`: the operation takes long enough that
    // reading the clock does not matter.
    std::uint64_t start(std::uint64_t what, bool long_enough) noexcept {
        constexpr std::uint64_t every = 16;
        const std::uint64_t number = last_.load(std::memory_order_relaxed) + 1;
        Slot &slot = slots_[number % ring_slots];
        slot.what.store(what, std::memory_order_relaxed);
        slot.started.store(long_enough || number % every == 0 ? real_time_of_last_tick() : 0,
                           std::memory_order_relaxed);
        last_.store(number, std::memory_order_release);
        return number;
    }
    // Records the peer and the tag of a message, of which this is the number. `any_source`: a
    // receive from any source; its peer is the sender, or negative until it is known.
    void set_message(std::uint64_t number, std::int32_t peer, std::int32_t tag,
                     bool any_source) noexcept {
        if (last_.load(std::memory_order_relaxed) - number >= ring_slots) return;
        const std::uint64_t upper = static_cast<std::uint32_t>(peer);
        slots_[number % ring_slots].message.store(
            upper << 32 | (any_source ? any_source_bit : 0) | static_cast<std::uint32_t>(tag),
            std::memory_order_relaxed);
    }
    // Marks an operation that takes long. Sets its start time to now if none was recorded.
    void takes_long(std::uint64_t number) noexcept;
    void complete(std::uint64_t number) noexcept {
        if (last_.load(std::memory_order_relaxed) - number >= ring_slots) return;
        std::atomic<std::uint64_t> &what = slots_[number % ring_slots].what;
        what.store(what.load(std::memory_order_relaxed) | done, std::memory_order_relaxed);
    }

    struct Entry {
        std::uint64_t number = 0;
        std::uint64_t what = 0;
        bool completed = false;
        std::int64_t started = 0;  // real time in nanoseconds; 0: not recorded
        // Of a message; no meaning for any other operation.
        std::int32_t peer = 0, tag = 0;
        bool any_source = false;
    };
    // The last operations, by ascending number.
    std::vector<Entry> entries() const;
    std::uint64_t started() const noexcept { return last_.load(std::memory_order_relaxed); }

private:
    // Twice `kept`, so that the oldest entry can be read while the newest is written.
    static constexpr std::uint64_t ring_slots = 2 * kept;
    static constexpr std::uint64_t done = std::uint64_t{1} << 63;
    static constexpr std::uint64_t any_source_bit = std::uint64_t{1} << 31;  // above all tags

    struct Slot {
        std::atomic<std::uint64_t> what{0};
        std::atomic<std::int64_t> started{0};
        std::atomic<std::uint64_t> message{0};  // peer: 32 bits; any source: 1 bit; tag: 31 bits
    };

    std::array<Slot, ring_slots> slots_;
    std::atomic<std::uint64_t> last_{0};
};

}  // namespace vescomm::internal
