// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/flight_recorder.h"

#include <algorithm>
#include <ctime>

namespace vescomm {

void FlightRecorder::takes_long(std::uint64_t number) noexcept {
    if (last_.load(std::memory_order_relaxed) - number >= places) return;
    std::atomic<std::int64_t> &started = slots_[number % places].started;
    if (started.load(std::memory_order_relaxed) == 0)
        started.store(real_time_of_last_tick(), std::memory_order_relaxed);
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
    std::vector<Entry> entries;
    const std::uint64_t last = last_.load(std::memory_order_acquire);
    for (std::uint64_t number = last > kept ? last - kept + 1 : 1; number <= last; ++number) {
        const Slot &slot = slots_[number % places];
        const std::uint64_t what = slot.what.load(std::memory_order_acquire);
        entries.push_back({.number = number,
                           .what = what & ~done,
                           .completed = (what & done) != 0,
                           .started = slot.started.load(std::memory_order_acquire)});
    }
    // Others may have come into their places meanwhile, and one more is being written.
    const std::uint64_t now = last_.load(std::memory_order_relaxed);
    std::erase_if(entries, [now](const Entry &entry) { return entry.number + places <= now + 1; });
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

}  // namespace vescomm
