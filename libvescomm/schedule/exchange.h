// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace vescomm {

// How much every rank has for every other one: a matrix, of which a rank usually knows only its own
// row and column. A plain value. Blocks lie one after another, by the other rank.
class Exchange {
public:
    Exchange() = default;

    // All of it; counts[from * ranks + to].
    static Exchange whole(int ranks, std::vector<std::int64_t> counts);
    // What `rank` knows: what it has for each, and gets from each.
    static Exchange known_to(int rank, std::vector<std::int64_t> sends,
                             std::vector<std::int64_t> receives);

    // Whether all of it is known.
    bool is_whole() const { return rank_ < 0; }

    std::int64_t count(int from, int to) const;
    // Where the block for `to` begins among those of `from`.
    std::int64_t sent_at(int from, int to) const;
    // Where the block of `from` begins among those that `to` gets.
    std::int64_t received_at(int from, int to) const;

    bool operator==(const Exchange &) const = default;

private:
    int ranks_ = 0;
    int rank_ = -1;  // none: everything is known
    std::vector<std::int64_t> sends_;  // or the matrix
    std::vector<std::int64_t> receives_;  // or the matrix, transposed
    std::vector<std::int64_t> sent_at_;
    std::vector<std::int64_t> received_at_;
};

}  // namespace vescomm
