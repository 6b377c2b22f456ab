// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up. The result decides between modes, so it must be the same on every machine: few
// operations, in a fixed order, compiled without fused multiply-add (meson.build).
#include "planner/costs.h"

namespace vescomm::planner {

void Traffic::add(const Answer &answer, std::int64_t element_bytes, std::int64_t count) {
    constexpr std::int64_t collectives_of_buffer = 3;
    bool equal = true;
    for (std::size_t k = 1; equal && k < answer.cuts.size(); ++k) {
        equal = answer.cuts[k] - answer.cuts[k - 1] == answer.largest_shard;
    }
    const std::int64_t added = collectives_of_buffer * count;
    const auto others = static_cast<double>(answer.cuts.size()) - 2;
    collectives += added;
    if (!equal) unequal += added;
    const double largest_bytes =
        static_cast<double>(answer.largest_shard) * static_cast<double>(element_bytes);
    wire_bytes += largest_bytes * others * static_cast<double>(added);
}

double Traffic::seconds(const Costs &costs) const noexcept {
    return static_cast<double>(collectives) * costs.seconds_per_collective +
           static_cast<double>(unequal) * costs.seconds_per_unequal +
           wire_bytes / costs.bytes_per_second;
}

}  // namespace vescomm::planner
