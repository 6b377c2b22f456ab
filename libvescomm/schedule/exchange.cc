// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/exchange.h"

#include <stdexcept>

namespace vescomm::internal {

namespace {

// Prefix sums, restarted after every `length` counts.
std::vector<std::int64_t> starts(const std::vector<std::int64_t> &counts, std::size_t length) {
    std::vector<std::int64_t> starts(counts.size(), 0);
    for (std::size_t i = 1; i < counts.size(); ++i)
        if (i % length != 0) starts[i] = starts[i - 1] + counts[i - 1];
    return starts;
}

std::size_t place(int row, int ranks, int column) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(ranks) +
           static_cast<std::size_t>(column);
}

}  // namespace

Exchange Exchange::whole(int ranks, std::vector<std::int64_t> counts) {
    Exchange made;
    made.ranks_ = ranks;
    made.receives_.resize(counts.size());
    for (int from = 0; from < ranks; ++from)
        for (int to = 0; to < ranks; ++to)
            made.receives_[place(to, ranks, from)] = counts[place(from, ranks, to)];
    made.sends_ = std::move(counts);
    made.sent_at_ = starts(made.sends_, static_cast<std::size_t>(ranks));
    made.received_at_ = starts(made.receives_, static_cast<std::size_t>(ranks));
    return made;
}

Exchange Exchange::known_to(int rank, std::vector<std::int64_t> sends,
                            std::vector<std::int64_t> receives) {
    Exchange made;
    made.ranks_ = static_cast<int>(sends.size());
    made.rank_ = rank;
    made.sent_at_ = starts(sends, sends.size());
    made.received_at_ = starts(receives, receives.size());
    made.sends_ = std::move(sends);
    made.receives_ = std::move(receives);
    return made;
}

std::int64_t Exchange::count(int from, int to) const {
    if (rank_ < 0) return sends_[place(from, ranks_, to)];
    if (from == rank_) return sends_[static_cast<std::size_t>(to)];
    if (to == rank_) return receives_[static_cast<std::size_t>(from)];
    throw std::logic_error("a rank knows only its own part of an exchange");
}

std::int64_t Exchange::sent_at(int from, int to) const {
    if (rank_ < 0) return sent_at_[place(from, ranks_, to)];
    if (from != rank_) throw std::logic_error("a rank knows only where its own blocks are");
    return sent_at_[static_cast<std::size_t>(to)];
}

std::int64_t Exchange::received_at(int from, int to) const {
    if (rank_ < 0) return received_at_[place(to, ranks_, from)];
    if (to != rank_) throw std::logic_error("a rank knows only where its own blocks go");
    return received_at_[static_cast<std::size_t>(from)];
}

}  // namespace vescomm::internal
