// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/slot_ranges.h"

#include <algorithm>

namespace vescomm::fsdp {

std::vector<SlotRange> slot_ranges(const std::vector<bool> &large, const SlotNumbers &numbers) {
    std::vector<SlotRange> ranges(large.size());
    int begin = 0;
    for (const bool kind : {false, true}) {
        const auto units = static_cast<int>(std::ranges::count(large, kind));
        const int slots = std::min(units, static_cast<int>(kind ? numbers.large : numbers.others));
        int next = begin;
        for (std::size_t unit = 0; unit < large.size(); ++unit) {
            if (large[unit] != kind) continue;
            ranges[unit] =
                slots == units ? SlotRange{next, next + 1} : SlotRange{begin, begin + slots};
            ++next;
        }
        begin += slots;
    }
    return ranges;
}

std::vector<std::uint64_t> slot_bytes(std::span<const SlotRange> ranges,
                                      std::span<const std::uint64_t> unit_bytes) {
    std::vector<std::uint64_t> bytes;
    for (std::size_t unit = 0; unit < ranges.size(); ++unit) {
        const auto end = static_cast<std::size_t>(ranges[unit].end);
        bytes.resize(std::max(bytes.size(), end), 0);
        for (auto slot = static_cast<std::size_t>(ranges[unit].begin); slot < end; ++slot)
            bytes[slot] = std::max(bytes[slot], unit_bytes[unit]);
    }
    return bytes;
}

}  // namespace vescomm::fsdp
