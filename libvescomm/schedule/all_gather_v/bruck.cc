// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/all_gather_v/bruck.h"

#include "schedule/algorithms.h"
#include "schedule/chunks.h"
#include "schedule/node_blocks.h"
#include "schedule/rails.h"

namespace vescomm::internal::all_gather_v {

namespace {

enum Flag : std::uint32_t {
    // Values 1 and 2 of the first rank of a node: its buffer may be written; all shards of the node
    // are in its memory. Value 3 + k of any rank: the data of phase k has arrived through this
    // rank.
    held,
    written,  // the shard of this rank is in the memory of the first rank of its node
    clear_to_send,  // for a sender on another node: the buffer may be overwritten
    arrived,  // raised by a put: value i means that the i-th extent of a message has arrived
    read,  // this rank has copied all data it needs from the first rank of its node
};

}  // namespace

bool can_bruck(const AnyProblem &problem) {
    if (problem->nodes.count() == 1) return false;
    const ArrayProblem *arrays = problem.arrays();
    return arrays == nullptr || arrays->elements() <= arrays->staging.count;
}

Place gathered_on_node(const AnyProblem &problem, int first) {
    if (const ArrayProblem *arrays = problem.arrays())
        return {first, Region::staging, arrays->staging.begin};
    return {first, Region::buffer, 0};
}

// Bruck: each message carries the shards of 1, 2, 4, ... nodes.
//
//     phase k:   node n ──shards of the 2^k nodes up to n──► node n + 2^k
//
// After phase k a node holds the shards of 2^(k + 1) nodes: its own, and those of the nodes before
// it, cyclically. The last phase transfers the remaining shards. They lie at their offsets in the
// vector: in the slab of the node, or in the buffer or the staging buffer of its first rank. Each
// contiguous extent is one put. A long message is cut into slices, which several ranks of the node
// put: to the same local rank if the node has one slab, else to the first rank.
//
// Cost: ceil(log2(nodes)) phases, and two passes within a node; a node sends the shards of every
// other node once. Best while messages cost more than bytes.
// Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient Algorithms for All-to-All Communications
// in Multiport Message-Passing Systems", IEEE TPDS 8(11), 1997; blocks there are equal, and are
// rotated to their place at the end.
Schedule gather_on_nodes(const AnyProblem &any, int rank) {
    const Problem &problem = *any;
    const BufferProblem *buffers = any.buffers();
    const ArrayProblem *arrays = any.arrays();
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank), mine = nodes.local_rank(rank);
    const auto members = nodes.members(node);
    const int first = members[0];
    const bool is_first = rank == first;
    const bool per_node = buffers != nullptr && buffers->per_node;
    const bool per_rank = buffers != nullptr && !buffers->per_node;
    const bool in_place = buffers != nullptr && buffers->in_place;
    const Place source = arrays != nullptr ? arrays->source(rank) : buffers->source(rank);
    const auto in_vector = [&](int at, std::int64_t begin) {
        return later(gathered_on_node(any, at), begin);
    };

    // The message of one phase from a node to another.
    struct Message {
        int from = 0, to = 0;  // nodes
        std::vector<Extent> extents;
        int slices = 0;  // 0: empty message
    };
    const NodeBlocks blocks(nodes, problem.cuts);
    // Only its owner puts from a buffer, because only the owner knows when the put has left.
    const int max_slices = per_rank ? 1 : nodes.smallest();
    std::vector<Message> incoming, outgoing;
    for (int k = 0; k < blocks.phases(); ++k) {
        for (const bool in : {true, false}) {
            Message message;
            message.from = in ? blocks.wrap(node - (1 << k)) : node;
            message.to = in ? node : blocks.wrap(node + (1 << k));
            message.extents = blocks.extents(message.from - blocks.sent(k) + 1, blocks.sent(k));
            if (!message.extents.empty())
                message.slices = slices_for(max_slices, elements_of(message.extents));
            (in ? incoming : outgoing).push_back(std::move(message));
        }
    }
    const auto receiver = [&](const Message &message, int slice) {
        return nodes.members(message.to)[per_node ? slice : 0];
    };
    const auto phase_value = [](int k) { return static_cast<std::uint32_t>(k) + 3; };
    const auto await = [&](Lane &lane, int k) {
        const int receivers = per_node ? incoming[k].slices : std::min(1, incoming[k].slices);
        for (int slice = 0; slice < receivers; ++slice)
            lane.wait(receiver(incoming[k], slice), held, phase_value(k));
    };

    Schedule schedule;
    schedule.staging = arrays != nullptr ? arrays->staging.begin + problem.elements() : 0;
    Lane lane, send;

    // Moves the shard to the first rank.
    const std::int64_t begin = problem.begin(rank), size = problem.size(rank);
    if (!per_rank) lane.acquire();
    for (const Message &message : incoming)
        for (int slice = 0; slice < message.slices; ++slice)
            if (receiver(message, slice) == rank)
                lane.signal(nodes.members(message.from)[slice], clear_to_send, 1);
    if (per_rank && is_first && members.size() > 1) lane.signal_node(held, 1);
    if (per_rank && !is_first) {
        lane.wait(first, held, 1);
        if (!in_place) lane.copy(source, buffers->shard(rank, rank), size);
    }
    const bool is_there = in_place && (per_node || is_first);
    if (!is_there) lane.copy(source, in_vector(first, begin), size);
    if (!is_first) lane.signal_node(written, 1);
    if (is_first) {
        for (const int peer : members)
            if (peer != rank) lane.wait(peer, written, 1);
        lane.signal_node(held, 2);
    }

    // Exchanges messages between nodes.
    send.wait(first, held, 2);
    for (int k = 0; k < blocks.phases(); ++k) {
        const Message &message = outgoing[k];
        if (mine < message.slices) {
            const int to = receiver(message, mine);
            send.wait(to, clear_to_send, 1);
            std::uint32_t puts = 0;
            for (const Extent &extent : slice_of(message.extents, mine, message.slices))
                send.put(in_vector(first, extent.begin), in_vector(to, extent.begin), extent.count,
                         arrived, ++puts);
        }
        await(send, k);

        bool receives = false;
        for (int slice = 0; slice < incoming[k].slices; ++slice) {
            if (receiver(incoming[k], slice) != rank) continue;
            const auto puts = slice_of(incoming[k].extents, slice, incoming[k].slices).size();
            for (std::uint32_t i = 1; i <= puts; ++i)
                lane.wait(nodes.members(incoming[k].from)[slice], arrived, i);
            receives = true;
        }
        if (receives) lane.signal_node(held, phase_value(k));
    }

    schedule.lanes.push_back(std::move(lane));
    schedule.lanes.push_back(std::move(send));
    return schedule;
}

Schedule bruck(const AnyProblem &any, int rank) {
    const Problem &problem = *any;
    const auto members = problem.nodes.members(problem.nodes.node_of(rank));
    const int first = members[0];
    Schedule schedule = gather_on_nodes(any, rank);
    Lane &lane = schedule.lanes.back();
    const BufferProblem *buffers = any.buffers();
    if (buffers == nullptr) {
        lane.copy(gathered_on_node(any, first), {rank, Region::output, 0}, problem.elements());
        return schedule;
    }
    if (buffers->per_node) return schedule;
    const std::int64_t begin = problem.begin(rank), end = begin + problem.size(rank);
    const auto copy = [&](std::int64_t from, std::int64_t to) {
        lane.copy({first, Region::buffer, from}, {rank, Region::buffer, from}, to - from);
    };
    if (rank != first) {
        copy(0, begin);
        copy(end, problem.elements());
        lane.signal_node(read, 1);
    }
    for (const int peer : members)
        if (rank == first && peer != rank) lane.wait(peer, read, 1);
    return schedule;
}

}  // namespace vescomm::internal::all_gather_v
