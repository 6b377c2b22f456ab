// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/case/types.h"

namespace vescomm::perf {

// What is measured at one size: a plain value that travels as a line of text.
struct Case {
    std::string collective;  // a row of collectives()
    std::string type = "f32";
    std::string output_type = "f32";  // of reduce_scatter_v, as its row says; else the same as type
    std::string op = "none";  // "sum", "avg"; "none" where nothing is combined
    int root = -1;  // -1 where there is none
    bool shared = false;  // one result for each node, where that is possible
    bool non_blocking = false;  // start() must return before the operation is complete
    std::int64_t block = 1;  // cuts and tensors lie on multiples of it
    std::vector<std::int64_t> cuts;  // rank k owns elements [cuts[k], cuts[k + 1])
    std::vector<std::int64_t> tensors;  // tensor k has elements [tensors[k], tensors[k + 1])

    int ranks() const { return static_cast<int>(cuts.size()) - 1; }
    std::int64_t elements() const { return cuts.back(); }
    std::int64_t bytes() const { return elements() * find_type(type).bytes(); }
    std::int64_t shard(int rank) const { return cuts[rank + 1] - cuts[rank]; }
    // send_receive: elements that a rank sends to the next one. Equal ones are the whole buffer.
    std::int64_t message(int rank) const { return shard(rank) * ranks(); }
    int next(int rank) const { return (rank + 1) % ranks(); }
    int previous(int rank) const { return (rank + ranks() - 1) % ranks(); }
    std::int64_t largest_shard() const;
    double rho() const;  // the largest shard over the mean one

    bool operator==(const Case &) const = default;
};

// Elements [begin, end) of the buffer.
struct Extent {
    std::int64_t begin = 0;
    std::int64_t end = 0;

    std::int64_t elements() const { return end - begin; }
    bool operator==(const Extent &) const = default;
};

// One tensor, for libraries that move one at a time: what each rank owns of it, one after another.
struct Part {
    std::int64_t first = 0;  // of the tensor, in the buffer
    std::int64_t elements = 0;  // of the tensor
    // By rank.
    std::vector<std::int64_t> counts;
    std::vector<std::int64_t> begins;  // in the buffer
    std::vector<std::int64_t> in_shard;  // the same, from the first element of the rank's shard
};

std::vector<Part> parts_of(const Case &what);

}  // namespace vescomm::perf
