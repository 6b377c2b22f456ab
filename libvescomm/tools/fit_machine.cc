// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/fit_machine.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vescomm::internal {

namespace {

using Memory = MeasuredTimes::Memory;

// Bytes per second; `otherwise` if the measurement was disturbed and is not positive.
double rate(double bytes, double seconds, double otherwise) {
    return seconds > 0 ? bytes / seconds : otherwise;
}

// Seconds per byte of a footprint for a cache of `cache` bytes, by the model of speed_for():
// `in_cache` and `in_memory` are the seconds per byte of the smallest and the largest footprint.
double blended(double footprint, double cache, double in_cache, double in_memory) {
    const double outside = share_in_memory(footprint, cache);
    return in_cache * (1 - outside) + in_memory * outside;
}

// The cache size that fits the measured speeds of all footprints best.
double fit_cache(const std::vector<Memory> &copies, double otherwise) {
    if (copies.size() < 3) return otherwise;
    for (const Memory &memory : copies)
        if (!(memory.together > 0)) return otherwise;
    const auto each = [](const Memory &memory) { return memory.together / memory.bytes; };
    const double in_cache = each(copies.front()), in_memory = each(copies.back());
    double best = otherwise, min = std::numeric_limits<double>::max();
    for (double cache = copies.front().footprint; cache <= copies.back().footprint;
         cache *= std::sqrt(2.0)) {
        double wrong = 0;
        for (const Memory &memory : copies)
            wrong += std::abs(
                std::log(each(memory) / blended(memory.footprint, cache, in_cache, in_memory)));
        if (wrong >= min) continue;
        min = wrong;
        best = cache;
    }
    return std::round(best);
}

// Bytes per second of all ranks together, if that is less than the sum of their speeds alone; else
// 0, no limit.
double shared(const Memory &memory, int ranks) {
    const double all = ranks * rate(memory.bytes, memory.together, 0);
    constexpr double noise = 0.9;
    return all < noise * ranks * rate(memory.bytes, memory.alone, 0) ? all : 0;
}

void fit_links(const MeasuredTimes &times, bool tcp, Machine &machine) {
    // One way, the slower end is the limit. Assume that it is the sender: between emulated hosts it
    // does much of the receiver's work. Both ways, each end does the work of both.
    double put = times.small_one_way;
    double receive = std::clamp(times.small_both_ways - put, 0.0, put);
    // In round trips of signals the two ends alternate and do not disturb each other, so put +
    // receive cannot exceed the time of a signal. Scale both down if they do.
    const double cores = std::min(1.0, times.signal / (put + receive));
    machine.put_step_seconds = put *= cores;
    machine.receive_seconds = receive *= cores;
    machine.signal_seconds = machine.put_seconds = std::max(0.0, times.signal - put - receive);
    const double bytes = times.large_bytes;
    // Differences below this factor are noise: both ways take as long as one, so cores are not the
    // limit.
    constexpr double noise = 1.15;
    if (!tcp || (!times.one_host && times.large_both_ways < noise * times.large_one_way)) {
        machine.rail_bytes = rate(bytes, times.large_one_way, machine.rail_bytes);
        if (!tcp) return;
        machine.put_core_bytes = std::max(machine.put_core_bytes, machine.rail_bytes);
        machine.receive_core_bytes = std::max(machine.receive_core_bytes, machine.rail_bytes);
        return;
    }
    // The put travels in eight chunks. One way, the receiver is still busy with the last chunk when
    // all others are complete.
    constexpr double chunks = 8;
    const double both = times.large_both_ways;
    if (!(both > 0)) return;
    const double taking =
        std::clamp((both - times.large_one_way) * chunks / (chunks - 1), both / 10, both / 2);
    machine.receive_core_bytes = bytes / taking;
    machine.put_core_bytes = bytes / (both - taking);
}

}  // namespace

Machine fit_machine(const MeasuredTimes &times, bool tcp, Machine machine) {
    if (!times.copies.empty()) {
        const Memory &small = times.copies.front(), &large = times.copies.back();
        machine.cache_bytes = fit_cache(times.copies, machine.cache_bytes);
        machine.in_cache.copy = rate(small.bytes, small.alone, machine.in_cache.copy);
        machine.in_memory.copy = rate(large.bytes, large.alone, machine.in_memory.copy);
        machine.in_cache.node = shared(small, times.ranks);
        machine.in_memory.node = shared(large, times.ranks);
    }
    if (!times.reductions.empty()) {
        const Memory &small = times.reductions.front(), &large = times.reductions.back();
        machine.in_cache.reduce = rate(small.bytes, small.alone, machine.in_cache.reduce);
        machine.in_memory.reduce = rate(large.bytes, large.alone, machine.in_memory.reduce);
    }
    constexpr double max = 10;  // bound on the ratio to f32; beyond it the measurement is wrong
    if (times.widths.size() == machine.reduce_of_width.size())
        for (std::size_t i = 0; i < times.widths.size(); ++i)
            if (times.widths[2] > 0 && times.widths[i] > 0)
                machine.reduce_of_width[i] =
                    std::clamp(times.widths[2] / times.widths[i], 1 / max, max);
    if (times.step > 0) machine.step_seconds = times.step;
    if (times.flag > 0) {
        // One way of a round trip is a signal, the flag's latency and a wait.
        machine.flag_seconds = std::max(0.0, times.flag - 2 * machine.step_seconds);
        machine.call_seconds = std::max(0.0, times.call - times.flag);
    }
    if (times.has_links) fit_links(times, tcp, machine);
    return machine;
}

}  // namespace vescomm::internal
