// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vescomm::perf {

// Proportions of a buffer that the ranks own.
struct Ragged {
    std::string name;  // as given
    std::vector<double> weights;  // one for each rank
};

// Parses "equal", "linear", "zipf:1.2", "one-owner:0.9", "random:7" or "file:PATH" (a file of
// numbers, one for each rank, separated by spaces). Throws std::invalid_argument.
Ragged parse_ragged(const std::string &text, int ranks);

// Returns cuts of about `elements` elements, and never more, on multiples of `block`. Equal shards
// are exactly equal, so a few elements at the end may be left out, as in nccl-tests.
std::vector<std::int64_t> cut(const Ragged &ragged, std::int64_t elements, std::int64_t block);

// Returns `count` + 1 offsets of tensors of about the same size, on multiples of `block`.
std::vector<std::int64_t> split_evenly(std::int64_t elements, std::int64_t count,
                                       std::int64_t block);

}  // namespace vescomm::perf
