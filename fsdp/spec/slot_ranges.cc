// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/slot_ranges.h"

#include <algorithm>

namespace vescomm::fsdp {

std::vector<SlotRange> slot_ranges(std::span<const SlotUse> uses, const SlotNumbers &numbers) {
    std::vector<SlotRange> ranges(uses.size());
    int begin = 0;
    const auto add = [&](SlotUse use, std::size_t number) {
        const auto units = static_cast<int>(std::ranges::count(uses, use));
        const int slots = std::min(units, static_cast<int>(number));
        int next = begin;
        for (std::size_t unit = 0; unit < uses.size(); ++unit) {
            if (uses[unit] != use) continue;
            ranges[unit] =
                slots == units ? SlotRange{next, next + 1} : SlotRange{begin, begin + slots};
            ++next;
        }
        begin += slots;
    };
    add(SlotUse::shared, numbers.shared);
    add(SlotUse::kept, uses.size());
    add(SlotUse::large, numbers.large);
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
