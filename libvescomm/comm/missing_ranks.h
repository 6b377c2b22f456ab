// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace vescomm::internal {

// Finds the ranks that keep a run from completing: a wait whose deadline has passed is often for a
// rank that waits itself. docs/design/0038 has the protocol.
//
// Everything in this file is a pure function of its arguments.

// The search of one rank for the missing ranks of a run.
class MissingRanks {
public:
    // Ranks that one search asks.
    static constexpr std::size_t max_questions = 64;

    // `rank` waits for the `awaited` ranks.
    MissingRanks(int rank, const std::vector<int> &awaited);

    // Returns ranks to be asked now, and counts them as asked.
    std::vector<int> take_questions();
    // A rank that was asked waits for the `awaited` ranks; empty: for no rank.
    void add_waiting(int rank, const std::vector<int> &awaited);
    // A rank that was asked does not wait in the run.
    void add_absent(int rank);

    // Every rank that was asked has answered, and none is left to be asked.
    bool complete() const;
    // The ranks at the ends of all chains, ascending: those that are absent or have not answered.
    // Empty: all wait for one another.
    std::vector<int> missing() const;

private:
    enum class State { unasked, asked, waits, absent };

    void reach(const std::vector<int> &ranks);
    std::vector<int> in(State state) const;

    std::map<int, State> ranks_;
    std::size_t questions_ = 0;
};

}  // namespace vescomm::internal
