// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/chunks.h"
#include "schedule/rails.h"

namespace vescomm::internal::broadcast {

namespace {

enum Flag : std::uint32_t {
    // Values count chunks, from 1 on.
    held,  // the slice of this rank is in its memory; at the root: all slices
    clear_to_send,  // for the parent: the slice may be put
    arrived,  // raised by a put: the slice is in the receiver's memory
    taken,  // for the parent: the slice has arrived
    read,  // this rank has copied all data it needs from its node
};

// Elements of one put: enough to cover the latency of the next hop.
constexpr std::int64_t chunk = 16 * 1024;
// Chunk slots of the staging buffer: some are in transit while others are read.
constexpr std::int64_t slots = 4;

// The vector passes in chunks. A chunk is cut into slices, one for each of the first ranks of every
// node. The same on every rank.
class Plan {
public:
    explicit Plan(const AnyProblem &problem) : arrays_(problem.arrays()) {
        const int smallest = problem->nodes.smallest();
        const std::int64_t elements = problem->elements();
        slot_ = arrays_ != nullptr ? arrays_->staging.count / slots : elements;
        const std::int64_t max = std::min(slot_, chunk * smallest);
        if (max == 0 || elements == 0) return;
        const std::int64_t count = Chunks(elements, max).count();
        chunks = {elements, count, slices_for(smallest, elements / count)};
    }

    // Place of a slice in the memory of a rank that holds it.
    Place at(int rank, std::int64_t k, int slice) const {
        if (arrays_ == nullptr) return {rank, Region::buffer, chunks.begin(k, slice)};
        return {
            rank, Region::staging,
            arrays_->staging.begin + k % slots * slot_ + chunks.begin(k, slice) - chunks.begin(k)};
    }

    SlicedChunks chunks;

private:
    const ArrayProblem *arrays_;  // nullptr: a problem on buffers
    std::int64_t slot_ = 0;  // elements of a chunk slot
};

}  // namespace

bool can_pipeline(const AnyProblem &problem) {
    const ArrayProblem *arrays = problem.arrays();
    return problem->nodes.count() > 1 && (arrays == nullptr || arrays->staging.count >= slots);
}

// Pipeline: a binary tree over nodes, through which the vector passes in chunks.
//
//     n0 ──► n1 ──► n3        (node numbers relative to the root's node)
//     │       └───► n4
//     └────► n2 ──► n5
//
// Every node receives one slice of each chunk through each of its first ranks. So each of these has
// its own tree, and all rails carry data. Within a node every rank copies the slices from their
// holders; in the root's node, from the root. While one chunk is copied, others are in transit.
//
// Cost: log2(nodes) latencies, and one for each chunk; a node sends the vector twice, for any
// number of nodes. Source: pipelined binary trees as in Träff, Ripke, "Optimal Broadcast for Fully
// Connected Processor-Memory Networks", JPDC 68(7), 2008, section 1.
Schedule pipeline(const AnyProblem &any, int rank) {
    const Problem &problem = *any;
    const BufferProblem *buffers = any.buffers();
    const ArrayProblem *arrays = any.arrays();
    const Nodes &nodes = problem.nodes;
    const int count = nodes.count(), node = nodes.node_of(rank), mine = nodes.local_rank(rank);
    const auto members = nodes.members(node);
    const int root = problem.root, root_node = nodes.node_of(root);
    const int relative = (node - root_node + count) % count;
    const auto there = [&](int other) { return nodes.members((other + root_node) % count)[mine]; };
    const Plan plan(any);
    const SlicedChunks &chunks = plan.chunks;
    const bool has_slice = mine < chunks.slices();
    const bool per_node = buffers != nullptr && buffers->per_node;
    const bool per_rank = buffers != nullptr && !buffers->per_node;
    const auto holder = [&](int slice) { return relative == 0 ? root : members[slice]; };
    std::vector<int> children;
    for (const int child : {2 * relative + 1, 2 * relative + 2})
        if (has_slice && child < count) children.push_back(there(child));
    const auto value = [](std::int64_t chunk) { return static_cast<std::uint32_t>(chunk) + 1; };
    // True if a later chunk uses the slot of this one.
    const auto again = [&](std::int64_t chunk) {
        return arrays != nullptr && chunk + slots < chunks.count();
    };

    Schedule schedule;
    schedule.staging = arrays != nullptr ? arrays->staging.begin + arrays->staging.count : 0;
    Lane bring, take;
    if (!per_rank) bring.acquire();
    for (std::int64_t k = 0; k < chunks.count(); ++k) {
        // Brings the slice of this rank into its memory.
        const std::int64_t last = k - slots;
        if (last >= 0 && arrays != nullptr) {
            for (const int child : children) bring.wait(child, taken, value(last));
            for (const int peer : members)
                if (rank == root ? peer != rank : relative > 0 && has_slice)
                    bring.wait(peer, read, value(last));
        }
        if (rank == root) {
            if (arrays != nullptr)
                bring.copy({rank, Region::source, chunks.begin(k)}, plan.at(rank, k, 0),
                           chunks.begin(k + 1) - chunks.begin(k));
            bring.signal_node(held, value(k));
        } else if (has_slice && relative == 0) {
            bring.wait(root, held, value(k));
            if (!per_node)
                bring.copy(plan.at(root, k, mine), plan.at(rank, k, mine), chunks.size(k, mine));
            bring.signal_node(held, value(k));
        } else if (has_slice) {
            const int parent = there((relative - 1) / 2);
            if (arrays != nullptr || k == 0) bring.signal(parent, clear_to_send, value(k));
            bring.wait(parent, arrived, value(k));
            if (again(k)) bring.signal(parent, taken, value(k));
            bring.signal_node(held, value(k));
        }
    }

    // Puts each slice to all children before the next one.
    Lane send;
    for (std::int64_t k = 0; k < chunks.count() && !children.empty(); ++k) {
        send.wait(rank, held, value(k));
        for (const int child : children) {
            if (arrays != nullptr || k == 0) send.wait(child, clear_to_send, value(k));
            send.put(plan.at(rank, k, mine), plan.at(child, k, mine), chunks.size(k, mine), arrived,
                     value(k));
        }
    }

    // Copies the slices to the array, or to the buffer, of this rank.
    for (std::int64_t k = 0; k < chunks.count() && rank != root; ++k) {
        for (int slice = 0; slice < chunks.slices(); ++slice) {
            take.wait(holder(slice), held, value(k));
            const Place from = plan.at(holder(slice), k, slice);
            // In the root's node this rank has already copied its own slice, to put it.
            const bool is_there = relative == 0 && slice == mine;
            if (is_there) take.wait(rank, held, value(k));
            if (arrays != nullptr)
                take.copy(from, {rank, Region::output, chunks.begin(k, slice)},
                          chunks.size(k, slice));
            else if (per_rank && holder(slice) != rank && !is_there)
                take.copy(from, plan.at(rank, k, slice), chunks.size(k, slice));
        }
        if (again(k)) take.signal_node(read, value(k));
    }
    // Waits until the buffer of this rank may be overwritten.
    if (per_rank && chunks.count() > 0) {
        const bool is_awaited = relative == 0 ? rank != root : chunks.slices() > 1 || !has_slice;
        if (is_awaited) take.signal_node(read, 1);
        for (const int peer : members)
            if (peer != rank && peer != root && (rank == root || (relative > 0 && has_slice)))
                take.wait(peer, read, 1);
    }
    for (Lane *lane : {&bring, &send, &take}) schedule.lanes.push_back(std::move(*lane));
    return schedule;
}

}  // namespace vescomm::internal::broadcast
