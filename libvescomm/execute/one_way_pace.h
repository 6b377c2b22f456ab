// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vescomm::internal {

// The pace of operations on arrays in which this rank puts eagerly to other nodes and receives
// nothing, such as a gather_v. It would run ahead until its eager budget is used up. Instead, one
// of `period` such operations waits for its receivers, so that they keep few puts, and so that the
// calls of a rank that is ahead are still among those that it remembers (RecentCalls).
class OneWayPace {
public:
    // No divisor of usual numbers of ranks: the root often goes round.
    static constexpr std::uint64_t period = 31;

    // `sequence`: slot sequence number of an operation that starts. True: its eager puts wait for
    // their receivers.
    bool waits(std::uint64_t sequence) noexcept {
        if (sequence < next_) return false;
        next_ = sequence + period;
        return true;
    }

private:
    std::uint64_t next_ = period;
};

}  // namespace vescomm::internal
