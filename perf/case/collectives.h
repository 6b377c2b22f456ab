// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "perf/case/case.h"

namespace vescomm::perf {

// The contents of a result, by which it is verified.
enum class Contents {
    nothing,
    of_owner,  // element e comes from the rank that owns e
    of_root,  // element e comes from the root
    of_previous,  // element e comes from the previous rank
    for_rank,  // this rank's shard of the buffer of each rank, one after another
    combined,  // element e is combined from all ranks
};

// A collective: its input, its expected result and its bus bandwidth.
struct Collective {
    std::string_view name;
    std::string_view nccl_name;
    std::string_view summary;
    Contents result;
    bool in_place;  // the result overwrites the input: each iteration needs new input
    bool may_share;  // one result for each node is possible
    bool converts;  // the result of a narrow type may be f32
    bool rooted;  // one rank has all of the input, or of the output
    Extent (*input)(const Case &what, int rank);  // elements that a rank writes before start()
    // Elements of the result of a rank. In a separate array the first element is the first one of
    // the extent.
    Extent (*output)(const Case &what, int rank);
    // Lower bound of the bytes through the busiest link in a network of one link per rank: bytes
    // that the busiest rank must receive, or send if it combines. busbw is this over time.
    double (*bus_bytes)(const Case &what);

    bool reduces() const { return result == Contents::combined; }
};

std::span<const Collective> collectives();

// Returns the bytes of an array that holds the buffer and the input of any rank.
std::int64_t bytes_with_input(const Case &what);

// Throws std::invalid_argument, which lists the known names.
const Collective &find_collective(std::string_view name);

}  // namespace vescomm::perf
