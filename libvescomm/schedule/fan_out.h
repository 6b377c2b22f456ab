// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "schedule/schedule.h"

namespace vescomm::internal {

// Elements of a chunk. A chunk stays in the second-level cache of a core while it is copied to
// several receivers. More elements have larger chunks, to limit the size of the schedule.
inline std::int64_t fan_out_chunk(std::int64_t elements) {
    constexpr std::int64_t min = 64 * 1024, max_chunks = 2048;
    return std::max(min, elements / max_chunks);
}

// Copies the same elements to several places. Each chunk is copied to all places before the next
// one, so elements are read from memory once.
inline void fan_out(Lane &lane, Place from, std::span<const Place> to, std::int64_t elements) {
    const std::int64_t chunk = to.size() > 1 ? fan_out_chunk(elements) : elements;
    for (std::int64_t begin = 0; begin < elements; begin += chunk)
        for (const Place &place : to)
            lane.copy(later(from, begin), later(place, begin), std::min(chunk, elements - begin));
}

}  // namespace vescomm::internal
