// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace vescomm::internal {

// Element counts of an all_to_all_v: a matrix with one count for each pair of ranks. A rank usually
// knows only its own row and column. A plain value. The blocks of a rank are contiguous, in the
// order of the other ranks.
class Exchange {
public:
    Exchange() = default;

    // The whole matrix: counts[from * ranks + to].
    static Exchange whole(int ranks, std::vector<std::int64_t> counts);
    // The row and the column of `rank`: the counts that it sends to and receives from each rank.
    static Exchange known_to(int rank, std::vector<std::int64_t> sends,
                             std::vector<std::int64_t> receives);

    // True if the whole matrix is known.
    bool is_whole() const { return rank_ < 0; }

    std::int64_t count(int from, int to) const;
    // Offset of the block for `to` in the source array of `from`.
    std::int64_t sent_at(int from, int to) const;
    // Offset of the block of `from` in the output array of `to`.
    std::int64_t received_at(int from, int to) const;

    bool operator==(const Exchange &) const = default;

private:
    int ranks_ = 0;
    int rank_ = -1;  // -1: the whole matrix is known
    std::vector<std::int64_t> sends_;  // the row of rank_, or the matrix
    std::vector<std::int64_t> receives_;  // the column of rank_, or the transposed matrix
    std::vector<std::int64_t> sent_at_;
    std::vector<std::int64_t> received_at_;
};

}  // namespace vescomm::internal
