// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/missing_ranks.h"

#include <algorithm>

namespace vescomm::internal {

MissingRanks::MissingRanks(int rank, const std::vector<int> &awaited) {
    ranks_[rank] = State::waits;
    reach(awaited);
}

void MissingRanks::reach(const std::vector<int> &ranks) {
    for (const int rank : ranks) ranks_.try_emplace(rank, State::unasked);
}

std::vector<int> MissingRanks::take_questions() {
    std::vector<int> ranks;
    for (auto &[rank, state] : ranks_) {
        if (state != State::unasked || questions_ == max_questions) continue;
        state = State::asked;
        ++questions_;
        ranks.push_back(rank);
    }
    return ranks;
}

void MissingRanks::add_waiting(int rank, const std::vector<int> &awaited) {
    // A rank that waits for no rank keeps the others waiting.
    if (awaited.empty()) return add_absent(rank);
    const auto found = ranks_.find(rank);
    if (found == ranks_.end() || found->second != State::asked) return;
    found->second = State::waits;
    reach(awaited);
}

void MissingRanks::add_absent(int rank) {
    const auto found = ranks_.find(rank);
    if (found != ranks_.end() && found->second == State::asked) found->second = State::absent;
}

std::vector<int> MissingRanks::in(State state) const {
    std::vector<int> ranks;
    for (const auto &[rank, each] : ranks_)
        if (each == state) ranks.push_back(rank);
    return ranks;
}

bool MissingRanks::complete() const {
    return in(State::asked).empty() && (questions_ == max_questions || in(State::unasked).empty());
}

std::vector<int> MissingRanks::missing() const {
    std::vector<int> ranks = in(State::absent);
    for (const int rank : in(State::asked)) ranks.push_back(rank);
    std::ranges::sort(ranks);
    return ranks.empty() ? in(State::unasked) : ranks;
}

}  // namespace vescomm::internal
