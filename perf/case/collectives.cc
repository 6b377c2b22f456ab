// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The table of collectives. A new one is a row here and a branch in each implementation that has
// it. Other implementations throw Unsupported.
//
// Zone: set-up.
#include "perf/case/collectives.h"

#include <algorithm>
#include <stdexcept>

namespace vescomm::perf {
namespace {

Extent nothing(const Case &, int) {
    return {};
}

Extent shard(const Case &what, int rank) {
    return {what.cuts[rank], what.cuts[rank + 1]};
}

Extent whole(const Case &what, int) {
    return {0, what.elements()};
}

Extent whole_at_root(const Case &what, int rank) {
    return rank == what.root ? whole(what, rank) : Extent{};
}

Extent message(const Case &what, int rank) {
    return {0, what.message(rank)};
}

Extent message_of_previous(const Case &what, int rank) {
    return message(what, what.previous(rank));
}

Extent shard_of_each(const Case &what, int rank) {
    return {0, what.shard(rank) * what.ranks()};
}

double no_bytes(const Case &) {
    return 0;
}

// Bytes of all shards except the smallest one, received by its owner. Equal shards: S (n - 1) / n.
double all_but_smallest_shard(const Case &what) {
    std::int64_t smallest = what.elements();
    for (int rank = 0; rank < what.ranks(); ++rank) smallest = std::min(smallest, what.shard(rank));
    return static_cast<double>((what.elements() - smallest) * find_type(what.type).bytes());
}

double all_but_root_shard(const Case &what) {
    return static_cast<double>((what.elements() - what.shard(what.root)) *
                               find_type(what.type).bytes());
}

// The library chooses the shards, so this is nccl-tests' factor, 2 (n - 1) / n.
double twice_but_own(const Case &what) {
    return 2.0 * (what.ranks() - 1) / what.ranks() * static_cast<double>(what.bytes());
}

// The owner of the largest shard receives it from every other rank. No rank sends more. Equal
// shards: S (n - 1) / n.
double largest_shard_of_others(const Case &what) {
    return static_cast<double>(what.largest_shard() * (what.ranks() - 1) *
                               find_type(what.type).bytes());
}

// Bytes of the largest message. Equal messages: S.
double largest_message(const Case &what) {
    return static_cast<double>(what.largest_shard() * what.ranks() * find_type(what.type).bytes());
}

double whole_buffer(const Case &what) {
    return static_cast<double>(what.bytes());
}

constexpr Collective table[] = {
    {.name = "all_gather_v",
     .nccl_name = "all_gather",
     .summary = "every rank has its shard; every rank gets all shards",
     .result = Contents::of_owner,
     .in_place = true,
     .may_share = true,
     .converts = false,
     .rooted = false,
     .input = shard,
     .output = whole,
     .bus_bytes = all_but_smallest_shard},
    {.name = "reduce_scatter_v",
     .nccl_name = "reduce_scatter",
     .summary = "every rank has a buffer; every rank gets its shard of the sum",
     .result = Contents::combined,
     .in_place = false,
     .may_share = false,
     .converts = true,
     .rooted = false,
     .input = whole,
     .output = shard,
     .bus_bytes = all_but_smallest_shard},
    {.name = "all_reduce",
     .nccl_name = "all_reduce",
     .summary = "every rank has a buffer; every rank gets the sum",
     .result = Contents::combined,
     .in_place = true,
     .may_share = false,
     .converts = false,
     .rooted = false,
     .input = whole,
     .output = whole,
     .bus_bytes = twice_but_own},
    {.name = "broadcast",
     .nccl_name = "broadcast",
     .summary = "the root has a buffer; every rank gets it",
     .result = Contents::of_root,
     .in_place = true,
     .may_share = false,
     .converts = false,
     .rooted = true,
     .input = whole_at_root,
     .output = whole,
     .bus_bytes = whole_buffer},
    {.name = "reduce",
     .nccl_name = "reduce",
     .summary = "every rank has a buffer; the root gets the sum",
     .result = Contents::combined,
     .in_place = true,
     .may_share = false,
     .converts = false,
     .rooted = true,
     .input = whole,
     .output = whole_at_root,
     .bus_bytes = whole_buffer},
    {.name = "gather_v",
     .nccl_name = "gather",
     .summary = "every rank has its shard; the root gets all shards",
     .result = Contents::of_owner,
     .in_place = false,
     .may_share = false,
     .converts = false,
     .rooted = true,
     .input = shard,
     .output = whole_at_root,
     .bus_bytes = all_but_root_shard},
    {.name = "scatter_v",
     .nccl_name = "scatter",
     .summary = "the root has a buffer; every rank gets its shard",
     .result = Contents::of_root,
     .in_place = false,
     .may_share = false,
     .converts = false,
     .rooted = true,
     .input = whole_at_root,
     .output = shard,
     .bus_bytes = all_but_root_shard},
    {.name = "all_to_all_v",
     .nccl_name = "alltoall",
     .summary = "every rank has a buffer; shard k of each goes to rank k",
     .result = Contents::for_rank,
     .in_place = false,
     .may_share = false,
     .converts = false,
     .rooted = false,
     .input = whole,
     .output = shard_of_each,
     .bus_bytes = largest_shard_of_others},
    {.name = "send_receive",
     .nccl_name = "sendrecv",
     .summary = "every rank sends to the next rank, in a ring",
     .result = Contents::of_previous,
     .in_place = false,
     .may_share = false,
     .converts = false,
     .rooted = false,
     .input = message,
     .output = message_of_previous,
     .bus_bytes = largest_message},
    {.name = "barrier",
     .nccl_name = "barrier",
     .summary = "no rank returns before all ranks have entered; has no size",
     .result = Contents::nothing,
     .in_place = false,
     .may_share = false,
     .converts = false,
     .rooted = false,
     .input = nothing,
     .output = nothing,
     .bus_bytes = no_bytes},
};

}  // namespace

std::span<const Collective> collectives() {
    return table;
}

std::int64_t bytes_with_input(const Case &what) {
    const Collective &row = find_collective(what.collective);
    std::int64_t elements = what.elements();
    for (int rank = 0; rank < what.ranks(); ++rank)
        elements = std::max(elements, row.input(what, rank).end);
    return elements * find_type(what.type).bytes();
}

const Collective &find_collective(std::string_view name) {
    const auto found = std::ranges::find_if(
        table, [&](const Collective &row) { return name == row.name || name == row.nccl_name; });
    if (found != std::end(table)) return *found;
    std::string known;
    for (const Collective &row : table)
        known += (known.empty() ? "" : ", ") + std::string(row.name);
    throw std::invalid_argument("collective \"" + std::string(name) + "\": there is " + known);
}

}  // namespace vescomm::perf
