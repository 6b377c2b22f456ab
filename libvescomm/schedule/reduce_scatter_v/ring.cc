// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/rails.h"

namespace vescomm::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    filled,  // my buffer holds my contribution
    taken,  // value i + 1: I have read the first i sums that came (told to the rank that puts them)
    arrived,  // a put: value i brings the i-th sum that the sender passes on
    ended,  // Plan::number(): this sum has come for a rank of my node; last(): I have passed on all
    read,  // value w + 1: I have read what came for my chunk w; last(): all I need from my node
};

// The sums of a chunk of a shard, as they pass a node.
struct Passing {
    int owner = 0;
    std::uint32_t chunk = 0;
    std::int64_t begin = 0, size = 0;
    int lane = 0;  // which rank of every node passes it on
    bool starts = false, ends = false;  // on this node
    std::uint32_t in = 0, out = 0;  // of those that come in, and go out, through that rank
};

// What passes a node, in order.
class Plan {
public:
    Plan(const Problem &problem, int node)
        : problem_(problem), lanes_(smallest_node(problem.nodes)) {
        const Nodes &nodes = problem.nodes;
        for (int owner = 0; owner < nodes.ranks(); ++owner)
            size_ = std::max(size_, problem.size(owner));
        size_ = std::min(size_, PutChunks(problem.elements()).size);
        std::vector<int> owners;
        for (int away = nodes.count() - 1; away >= 0; --away) {
            const auto members = nodes.members((node + away) % nodes.count());
            owners.insert(owners.end(), members.begin(), members.end());
        }
        const int left = (node + nodes.count() - 1) % nodes.count();
        std::vector<std::uint32_t> in(lanes_), out(lanes_);
        for (; !owners.empty(); ++rounds_) {
            const std::int64_t before = rounds_ * size_;
            std::erase_if(owners, [&](int owner) { return problem.size(owner) <= before; });
            for (const int owner : owners) {
                Passing passing{owner, rounds_, problem.begin(owner) + before,
                                std::min(size_, problem.size(owner) - before)};
                passing.lane = static_cast<int>((owner + rounds_) % lanes_);
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
    // Of partial sums that one rank needs.
    std::int64_t room() const { return 2 * slots * size_; }
    std::uint32_t last() const { return rounds_ * problem_.ranks() + 1; }
    // Rises along passings().
    std::uint32_t number(const Passing &passing) const {
        return passing.chunk * problem_.ranks() + passing.owner + 1;
    }
    Place incoming(int worker, std::uint32_t i) const {
        return {worker, Region::partial, i % slots * size_};
    }
    Place outgoing(int worker, std::uint32_t i) const {
        return {worker, Region::partial, (slots + i % slots) * size_};
    }

    static constexpr std::uint32_t slots = PutChunks::ring;

private:
    const Problem &problem_;
    int lanes_;
    std::int64_t size_ = 0;  // of a chunk
    std::uint32_t rounds_ = 0;
    std::vector<Passing> passings_;
};

}  // namespace

// Ring: running sums pass from node to node, and end at the node of their owner.
//
//     sums for d:   node d + 1 ──chunk──► node d + 2 ──► ... ──► node d - 1 ──► node d ──► output
//
// Every node adds the contributions of its ranks to what comes from the left. Chunks of a shard
// take turns at a few slots among the partial sums, and those for all owners pass a node in one
// order: the first chunk of each, from the farthest owner to the nearest, then the second. Waits
// follow that order, so they never go round in a circle. Chunks are dealt out to the first ranks
// of every node, each of which has a ring of its own.
//
// Cost: a node sends S less its own shards and gets no more, however unequal they are. With one
// owner of nearly everything that takes S and nodes chunks, where otherwise it gets nodes - 1
// times its shard; with equal shards nodes - 1 latencies more than that. Of several large shards
// each chunk waits for those before it to go round. Source: the pipelined ring of all_gather_v
// (ring.cc there), backwards.
Schedule ring(const Problem &problem, int rank) {
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
        schedule.partial = plan.room();
        const int left = nodes.members((node + nodes.count() - 1) % nodes.count())[mine];
        const int right = nodes.members((node + 1) % nodes.count())[mine];
        std::uint32_t come = 0;
        for (const Passing &passing : plan.passings())
            if (passing.lane == mine && !passing.starts) come = passing.in + 1;
        if (come > 0) take.signal(left, taken, 1);
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
                pass.reduce(from, plan.outgoing(rank, passing.out), passing.size, false);
                pass.put(plan.outgoing(rank, passing.out), plan.incoming(right, passing.out),
                         passing.size, arrived, passing.out + 1);
            }
            // So many more may come.
            if (!passing.starts && passing.in + Plan::slots < come)
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
                    passing.size, true);
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

}  // namespace vescomm::reduce_scatter_v
