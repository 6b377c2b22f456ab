// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vescomm::perf {

// How much of a buffer each rank owns, in proportion.
struct Ragged {
    std::string name;  // as it was given
    std::vector<double> weights;  // one for each rank
};

// "equal", "linear", "zipf:1.2", "one-owner:0.9", "random:7", "file:PATH" (numbers, one for each
// rank, between spaces). Throws std::invalid_argument.
Ragged parse_ragged(const std::string &text, int ranks);

// Cuts of about `elements` elements on multiples of `block`. Equal shards are really equal, so a
// few elements at the end may be left out, as nccl-tests does; never more than elements.
std::vector<std::int64_t> cut(const Ragged &ragged, std::int64_t elements, std::int64_t block);

// Tensors of about the same size, on multiples of `block`; `count` + 1 offsets.
std::vector<std::int64_t> split_evenly(std::int64_t elements, std::int64_t count,
                                       std::int64_t block);

}  // namespace vescomm::perf
