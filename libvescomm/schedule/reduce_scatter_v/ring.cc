// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/chunks.h"
#include "schedule/rails.h"

namespace vescomm::internal::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    filled,  // the contribution of this rank is in its buffer
    taken,  // value i + 1, for the left neighbour: this rank has read the first i sums of it
    arrived,  // raised by a put: value i means that the i-th sum of the sender has arrived
    ended,  // Plan::number(): this sum has arrived for a rank of the node; last(): all passed on
    read,  // value k + 1: this rank has read the sum for its chunk k; last(): all data it needs
};

// Elements of a chunk of every shard.
std::int64_t chunk_elements(const BufferProblem &problem) {
    std::int64_t size = 0;
    for (int owner = 0; owner < problem.ranks(); ++owner)
        size = std::max(size, problem.size(owner));
    return std::min(size, PutChunks(problem.elements()).size());
}

// Chunk slots for sums that arrive, and as many for sums that leave.
constexpr std::uint32_t ring_slots = PutChunks::ring;

// The running sum of one chunk of a shard, as it passes a node.
struct Passing {
    int owner = 0;
    std::uint32_t chunk = 0;  // of the shard
    std::int64_t begin = 0, count = 0;  // elements of the vector
    int lane = 0;  // local rank that passes it on
    bool starts = false, ends = false;  // true if the sum starts, or ends, on this node
    // Its number among the sums that arrive at, and that leave, this rank.
    std::uint32_t in = 0, out = 0;
};

// The running sums that pass a node, in order.
class Plan {
public:
    Plan(const BufferProblem &problem, int node)
        : problem_(problem), lanes_(problem.nodes.smallest()), size_(chunk_elements(problem)) {
        const Nodes &nodes = problem.nodes;
        std::vector<int> owners;
        for (int away = nodes.count() - 1; away >= 0; --away) {
            const auto members = nodes.members((node + away) % nodes.count());
            owners.insert(owners.end(), members.begin(), members.end());
        }
        const int left = (node + nodes.count() - 1) % nodes.count();
        std::vector<std::uint32_t> in(lanes_), out(lanes_);
        for (; !owners.empty(); ++chunks_) {
            const std::int64_t before = chunks_ * size_;
            std::erase_if(owners, [&](int owner) { return problem.size(owner) <= before; });
            for (const int owner : owners) {
                Passing passing{owner, chunks_, problem.begin(owner) + before,
                                std::min(size_, problem.size(owner) - before)};
                passing.lane = static_cast<int>((owner + chunks_) % lanes_);
                passing.starts = nodes.node_of(owner) == left;
                passing.ends = nodes.node_of(owner) == node;
                passing.in = passing.starts ? 0 : in[passing.lane]++;
                passing.out = passing.ends ? 0 : out[passing.lane]++;
                passings_.push_back(passing);
            }
        }
    }

    const std::vector<Passing> &passings() const { return passings_; }
    int lanes() const { return lanes_; }
    // Greater than any number().
    std::uint32_t last() const { return chunks_ * problem_.ranks() + 1; }
    // Value of `ended` for a sum. It rises along passings().
    std::uint32_t number(const Passing &passing) const {
        return passing.chunk * problem_.ranks() + passing.owner + 1;
    }
    Place incoming(int worker, std::uint32_t i) const {
        return {worker, Region::partial, i % slots * size_};
    }
    Place outgoing(int worker, std::uint32_t i) const {
        return {worker, Region::partial, (slots + i % slots) * size_};
    }

    static constexpr std::uint32_t slots = ring_slots;

private:
    const BufferProblem &problem_;
    int lanes_;
    std::int64_t size_;  // of a chunk
    std::uint32_t chunks_ = 0;  // of the largest shard
    std::vector<Passing> passings_;
};

}  // namespace

std::int64_t max_partial_of_ring(const BufferProblem &problem) {
    return 2 * ring_slots * chunk_elements(problem);
}

// Ring: running sums pass from node to node, and end at the node of their owner.
//
//     sums for d:   node d + 1 ──chunk──► node d + 2 ──► ... ──► node d - 1 ──► node d ──► output
//
// Every node adds the contributions of its ranks to the sums from its left neighbour. Chunks use a
// few slots among the partial sums in turn, and pass a node in one order: the first chunk of each
// owner, from the farthest owner to the nearest, then the second chunks. Waits follow that order,
// so they never form a cycle. Chunks are distributed cyclically over the first ranks of every node,
// each of which has its own ring.
//
// Cost: a node sends at most S without its own shards, for any cuts, and receives no more. With one
// owner of nearly everything the time is that of S and nodes chunks; with other algorithms the
// owner receives its shard nodes - 1 times. Equal shards take nodes - 1 latencies more. With
// several large shards each chunk waits until the chunks before it have passed. Source: the
// pipelined ring of all_gather_v (ring.cc there), backwards.
Schedule ring(const BufferProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank), mine = nodes.local_rank(rank);
    const auto members = nodes.members(node);
    const Plan plan(problem, node);
    const auto in_buffers = [&](const Passing &passing) {
        std::vector<Place> places;
        for (const int member : members) places.push_back({member, Region::buffer, passing.begin});
        return places;
    };

    Schedule schedule;
    Lane pass, take;
    for (const int peer : members)
        if (peer != rank) pass.wait(peer, filled, 1);

    const bool passes = mine < plan.lanes();
    if (passes) {
        schedule.partial = max_partial_of_ring(problem);
        const int left = nodes.members((node + nodes.count() - 1) % nodes.count())[mine];
        const int right = nodes.members((node + 1) % nodes.count())[mine];
        std::uint32_t arriving = 0;  // sums that the left neighbour puts
        for (const Passing &passing : plan.passings())
            if (passing.lane == mine && !passing.starts) arriving = passing.in + 1;
        if (arriving > 0) take.signal(left, taken, 1);
        for (const Passing &passing : plan.passings()) {
            if (passing.lane != mine) continue;
            std::vector<Place> from = in_buffers(passing);
            if (!passing.starts) {
                pass.wait(left, arrived, passing.in + 1);
                from.push_back(plan.incoming(rank, passing.in));
            }
            if (passing.ends) {
                pass.signal_node(ended, plan.number(passing));
                pass.wait(passing.owner, read, passing.chunk + 1);
            } else {
                pass.wait(right, taken, std::max(passing.out + 1, Plan::slots) - Plan::slots + 1);
                pass.reduce(from, plan.outgoing(rank, passing.out), passing.count, false);
                pass.put(plan.outgoing(rank, passing.out), plan.incoming(right, passing.out),
                         passing.count, arrived, passing.out + 1);
            }
            // Grants the credit for one more sum.
            if (!passing.starts && passing.in + Plan::slots < arriving)
                pass.signal(left, taken, passing.in + 2);
        }
        pass.signal_node(ended, plan.last());
    }

    meet(take, nodes, rank, filled);
    for (const Passing &passing : plan.passings()) {
        if (passing.owner != rank) continue;
        const int worker = members[passing.lane];
        take.wait(worker, ended, plan.number(passing));
        std::vector<Place> from = in_buffers(passing);
        from.push_back(plan.incoming(worker, passing.in));
        take.reduce(from, later(problem.output(rank), passing.begin - problem.begin(rank)),
                    passing.count, true);
        take.signal_node(read, passing.chunk + 1);
    }
    if (passes) take.wait(rank, ended, plan.last());
    take.signal_node(read, plan.last());
    for (const int peer : members)
        if (peer != rank) take.wait(peer, read, plan.last());
    schedule.lanes.push_back(std::move(take));
    if (passes) schedule.lanes.push_back(std::move(pass));
    return schedule;
}

}  // namespace vescomm::internal::reduce_scatter_v
