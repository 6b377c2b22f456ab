// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/flight_recorder.h"

#include <algorithm>
#include <ctime>

namespace vescomm::internal {

void FlightRecorder::takes_long(std::uint64_t number) noexcept {
    if (last_.load(std::memory_order_relaxed) - number >= ring_slots) return;
    std::atomic<std::int64_t> &started = slots_[number % ring_slots].started;
    if (started.load(std::memory_order_relaxed) == 0)
        started.store(real_time_of_last_tick(), std::memory_order_relaxed);
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
    std::vector<Entry> entries;
    const std::uint64_t last = last_.load(std::memory_order_acquire);
    for (std::uint64_t number = last > kept ? last - kept + 1 : 1; number <= last; ++number) {
        const Slot &slot = slots_[number % ring_slots];
        const std::uint64_t what = slot.what.load(std::memory_order_acquire);
        const std::uint64_t message = slot.message.load(std::memory_order_relaxed);
        entries.push_back({.number = number,
                           .what = what & ~done,
                           .completed = (what & done) != 0,
                           .started = slot.started.load(std::memory_order_acquire),
                           .peer = static_cast<std::int32_t>(message >> 32),
                           .tag = static_cast<std::int32_t>(message & (any_source_bit - 1)),
                           .any_source = (message & any_source_bit) != 0});
    }
    // Drop the entries that were overwritten meanwhile, and the one that may be overwritten now.
    const std::uint64_t now = last_.load(std::memory_order_relaxed);
    std::erase_if(entries,
                  [now](const Entry &entry) { return entry.number + ring_slots <= now + 1; });
    return entries;
}

std::int64_t real_time_of_last_tick() noexcept {
    timespec time{};
#if defined(CLOCK_REALTIME_COARSE)
    clock_gettime(CLOCK_REALTIME_COARSE, &time);
#else
    clock_gettime(CLOCK_REALTIME, &time);
#endif
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace vescomm::internal
