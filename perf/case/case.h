// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/case/types.h"

namespace vescomm::perf {

// One measurement: a collective with its parameters at one size. A plain value that is sent as a
// line of text.
struct Case {
    std::string collective;  // a row of collectives()
    std::string type = "f32";
    std::string output_type = "f32";  // equal to type unless Collective::converts
    std::string op = "none";  // "sum", "avg"; "none" if nothing is combined
    int root = -1;  // -1: none
    bool shared = false;  // one result for each node; needs Collective::may_share
    bool in_place = false;  // the result overwrites the input, or lies beside it in one array
    bool on_device = false;  // in the memory of GPUs
    bool non_blocking = false;  // start() must return before the operation is complete
    std::int64_t block = 1;  // cuts and tensors lie on multiples of it
    std::vector<std::int64_t> cuts;  // rank k owns elements [cuts[k], cuts[k + 1])
    std::vector<std::int64_t> tensors;  // tensor k has elements [tensors[k], tensors[k + 1])

    int ranks() const { return static_cast<int>(cuts.size()) - 1; }
    std::int64_t elements() const { return cuts.back(); }
    std::int64_t bytes() const { return elements() * find_type(type).bytes(); }
    std::int64_t shard(int rank) const { return cuts[rank + 1] - cuts[rank]; }
    // send_receive: elements that a rank sends to the next one. With equal shards this is the whole
    // buffer.
    std::int64_t message(int rank) const { return shard(rank) * ranks(); }
    int next(int rank) const { return (rank + 1) % ranks(); }
    int previous(int rank) const { return (rank + ranks() - 1) % ranks(); }
    std::int64_t largest_shard() const;
    double rho() const;  // largest shard over mean shard

    bool operator==(const Case &) const = default;
};

// Elements [begin, end) of the buffer.
struct Extent {
    std::int64_t begin = 0;
    std::int64_t end = 0;

    std::int64_t elements() const { return end - begin; }
    bool operator==(const Extent &) const = default;
};

// One tensor and its shards, for libraries that move one tensor at a time.
struct Part {
    std::int64_t first = 0;  // first element of the tensor in the buffer
    std::int64_t elements = 0;  // of the tensor
    std::vector<std::int64_t> counts;  // by rank: elements that the rank owns
    std::vector<std::int64_t> begins;  // by rank: first of these in the buffer
    std::vector<std::int64_t> in_shard;  // by rank: first of these, relative to the rank's shard
};

std::vector<Part> parts_of(const Case &what);

}  // namespace vescomm::perf
