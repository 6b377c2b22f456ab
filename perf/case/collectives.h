// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "perf/case/case.h"

namespace vescomm::perf {

// What a result is made of: the rule by which it is verified.
enum class Contents {
    nothing,
    of_owner,  // element e is that of the rank that owns e
    of_root,  // element e is the root's
    of_previous,  // element e is the previous rank's
    for_rank,  // the shard that is this rank's, of each rank's buffer, one after another
    combined,  // element e is the combination of all ranks'
};

// A collective: what ranks put in, what they must find afterwards, and how its speed is counted.
struct Collective {
    std::string_view name;
    std::string_view nccl_name;
    std::string_view summary;
    Contents result;
    bool in_place;  // the result overwrites the input: each iteration needs new input
    bool may_share;  // one result for each node is possible
    bool converts;  // the result of a narrow type may be f32
    bool rooted;  // one rank has all of the input, or of the output
    Extent (*input)(const Case &what, int rank);  // what a rank writes before it starts
    // What it must find when it is complete; in an array of its own the first element is the first
    // of the extent.
    Extent (*output)(const Case &what, int rank);
    // Bytes that bound the time from below on a network of one link a rank: those that the busiest
    // rank must receive, or send where it combines. busbw is this over time.
    double (*bus_bytes)(const Case &what);

    bool reduces() const { return result == Contents::combined; }
};

std::span<const Collective> collectives();

// Bytes of an array that holds the buffer and what any rank puts in.
std::int64_t bytes_with_input(const Case &what);

// Throws std::invalid_argument, which lists them.
const Collective &find_collective(std::string_view name);

}  // namespace vescomm::perf
