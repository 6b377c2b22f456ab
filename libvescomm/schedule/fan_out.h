// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "schedule/schedule.h"

namespace vescomm {

// Elements of a window of so many: as many as stay in the second cache of a core while it copies
// them to several receivers, and not so few that the schedule of much data becomes long.
inline std::int64_t fan_out_window(std::int64_t elements) {
    constexpr std::int64_t least = 64 * 1024, most_windows = 2048;
    return std::max(least, elements / most_windows);
}

// Copies the same elements to several places, a window to all of them before the next one: so they
// are read from memory once.
inline void fan_out(Lane &lane, Place from, std::span<const Place> to, std::int64_t elements) {
    const std::int64_t window = to.size() > 1 ? fan_out_window(elements) : elements;
    for (std::int64_t begin = 0; begin < elements; begin += window)
        for (const Place &place : to)
            lane.copy(later(from, begin), later(place, begin), std::min(window, elements - begin));
}

}  // namespace vescomm
