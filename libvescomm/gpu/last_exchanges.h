// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gpu/device_call.h"

namespace vescomm::internal {

// The counts of the last exchanges of this rank, for ranks of other nodes.
class LastExchanges {
public:
    static constexpr std::size_t kept = 8;

    // Throws std::bad_alloc.
    void add(std::uint64_t number, const ExchangeCounts &counts) {
        Exchange &oldest = exchanges_[next_++ % exchanges_.size()];
        oldest.number = 0;
        oldest.sent.assign(counts.sent.begin(), counts.sent.end());
        oldest.received.assign(counts.received.begin(), counts.received.end());
        oldest.number = number;
    }

    // The numbers of their calls, in any order; 0: none.
    std::array<std::uint64_t, kept> numbers() const {
        std::array<std::uint64_t, kept> all{};
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = exchanges_[i].number;
        return all;
    }
    // Nothing if it does not have the call.
    std::optional<ExchangePair> pair(std::uint64_t number, int rank) const {
        const auto at = static_cast<std::size_t>(rank);
        for (const Exchange &one : exchanges_)
            if (one.number == number && at < one.sent.size())
                return ExchangePair{one.sent[at], one.received[at]};
        return {};
    }

private:
    struct Exchange {
        std::uint64_t number = 0;  // of the call, from 1
        std::vector<std::int64_t> sent, received;  // elements, by rank
    };
    std::array<Exchange, kept> exchanges_;
    std::size_t next_ = 0;
};

}  // namespace vescomm::internal
