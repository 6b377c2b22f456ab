// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/rails.h"
#include "schedule/staged_blocks.h"

namespace vescomm::all_to_all_v {

namespace {

// Those of pass_blocks() that it has no use for: what a rank tells to other nodes is apart from
// what it tells to its own.
enum Flag : std::uint32_t {
    ready = 0,  // to another node: my stage has room for what you have for my node
    relayed = 3,  // to my node, value i: the first i of those who send through me have sent
    arrived = 3,  // a put from another node, which brings what its sender has for my node
};

// What all ranks know alike: who sends through whom, and where it lies.
class Relays {
public:
    explicit Relays(const Problem &problem) : problem_(problem), nodes_(problem.nodes) {
        for (int node = 0; node < nodes_.count(); ++node) {
            const int size = size_of(node);
            if (size > 1) max_places_ = std::max(max_places_, senders(size) * size);
        }
        const bool few = max_places_ > 0 && max_places_ <= places_for_each * nodes_.ranks();
        if (few) block_ = largest_forwarded(problem, max_places_);
    }

    // Elements of the largest block that is relayed; 0: none is.
    std::int64_t block() const { return block_; }

    // For the blocks that are not, where some are.
    Room rest() const { return beside_forwarded(problem_, max_places_); }

    // The first of the places of what `from` has for a node.
    std::uint32_t first_place(int from, int node) const {
        const int size = size_of(node);
        return static_cast<std::uint32_t>(
            (first_of(nodes_.node_of(from), size) + turn(from, size)) * size);
    }
    // Where the block for `to` lies in the staging buffer of the one through whom `from` sends.
    std::uint32_t number(int from, int to) const {
        return first_place(from, nodes_.node_of(to)) +
               static_cast<std::uint32_t>(nodes_.local_rank(to));
    }
    Place place(int from, int to) const {
        return {rail_peer(nodes_, nodes_.node_of(to), from), Region::staging,
                problem_.staging.begin + number(from, to) * block_};
    }

    // Those who send through a rank, in the order in which they put.
    std::vector<int> senders_through(int at) const {
        if (problem_.collective != Collective::scatter_v)
            return rotated_for(rail_peers(nodes_, at), at);
        const int node = nodes_.node_of(at), root = problem_.root;
        const bool mine = nodes_.node_of(root) != node && rail_peer(nodes_, node, root) == at;
        return mine ? std::vector<int>{root} : std::vector<int>{};
    }

private:
    int size_of(int node) const { return static_cast<int>(nodes_.members(node).size()); }
    // Of the ranks of a node that send through the same rank of a node of `size`, which one.
    int turn(int rank, int size) const {
        return problem_.collective == Collective::scatter_v ? 0 : nodes_.local_rank(rank) / size;
    }
    // How many send through one rank of a node of `size`, at most; and of the nodes before `node`.
    std::int64_t senders(int size) const { return first_of(nodes_.count(), size); }
    std::int64_t first_of(int node, int size) const {
        if (problem_.collective == Collective::scatter_v) return node == nodes_.count() ? 1 : 0;
        for (Firsts &known : firsts_)
            if (known.size == size) return known.of_node[static_cast<std::size_t>(node)];
        Firsts found{size, {0}};
        for (int other = 0; other < nodes_.count(); ++other)
            found.of_node.push_back(found.of_node.back() + (size_of(other) + size - 1) / size);
        firsts_.push_back(std::move(found));
        return firsts_.back().of_node[static_cast<std::size_t>(node)];
    }
    struct Firsts {
        int size;
        std::vector<std::int64_t> of_node;
    };

    const Problem &problem_;
    const Nodes &nodes_;
    std::int64_t max_places_ = 0, block_ = 0;
    mutable std::vector<Firsts> firsts_;  // one for each size of nodes
};

}  // namespace

bool can_two_level(const Problem &problem) {
    if (!problem.arrays || problem.nodes.count() == 1) return false;
    const Relays relays(problem);
    return relays.block() > 0 && can_pass_blocks(problem, relays.rest());
}

// Two levels (2DH): what a rank has for the ranks of another node goes there as one message, to the
// rank in its own place, and each of them copies its block from there. So a node sends each other
// node one message for each of its ranks, instead of one for each pair.
//
//     node A                                node B
//     source 0 ──blocks for 2 and 3, one put──► stage 2 ─copy─► output 2, output 3
//     source 1 ──blocks for 2 and 3, one put──► stage 3 ─copy─► output 2, output 3
//
// Blocks of more than a few kilobytes go straight to their receivers meanwhile, as those within the
// node do (staged_blocks.h): messages that long cost more for their bytes than for themselves.
// Sender and receiver of a block know alike which way it goes. Who relays does not, as a rank knows
// its own counts only; its neighbours tell it from whom they get something (Schedule::wants).
//
// Cost: a put for each other node and two passes over what it brings, as without a relay, and one
// wait within the node more. Source: Hwang et al., "Tutel: Adaptive Mixture-of-Experts at Scale",
// MLSys 2023, where blocks are equal, nodes too, and ranks exchange within their node first: that
// is one more pass, for which no counts must be known.
Schedule two_level(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int ranks = problem.ranks(), node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    const Relays relays(problem);
    const std::int64_t max = relays.block();
    // That the sender waits for something of the one who relays keeps it from being far ahead, and
    // that this one wants something itself makes it look at what comes.
    const auto is_eager = [&](int from, int through) {
        return problem.block(through, from) > 0 && is_forwarded(problem, from, through, max);
    };

    Schedule schedule = pass_blocks(problem, rank, relays.rest(), max);
    schedule.lanes.reserve(schedule.lanes.size() + static_cast<std::size_t>(nodes.count()) + 1);
    for (int peer = 0; peer < ranks; ++peer)
        schedule.receive_mask.push_back(is_forwarded(problem, peer, rank, max) ? 1 : 0);

    // To other nodes.
    std::vector<int> to;
    for (int away = 1; away < nodes.count(); ++away) {
        const auto others = nodes.members((node + away) % nodes.count());
        to.clear();
        for (const int peer : others)
            if (is_forwarded(problem, rank, peer, max)) to.push_back(peer);
        if (to.empty()) continue;
        const int through = rail_peer(nodes, nodes.node_of(to[0]), rank);
        Lane &lane = schedule.lanes.emplace_back();
        lane.steps().reserve(1 + to.size());
        lane.wait(through, ready, 1, is_eager(rank, through));
        for (const int peer : to)
            lane.put_through(problem.given(rank, peer), relays.place(rank, peer),
                             problem.block(rank, peer), arrived, peer == to.back() ? 1 : 0, peer,
                             relays.number(rank, peer));
    }
    if (members.size() == 1) return schedule;

    // For the others of this node.
    const std::vector<int> senders = relays.senders_through(rank);
    if (!senders.empty()) {
        Lane &lane = schedule.lanes.emplace_back();
        lane.steps().reserve(1 + 3 * senders.size());
        lane.acquire();
        for (const int peer : senders)
            lane.signal_conditional(peer, ready, 1, is_eager(peer, rank));
        std::uint32_t sent = 0;
        for (const int peer : senders) {
            lane.wait_conditional(peer, arrived, 1, relays.first_place(peer, node));
            lane.signal_node(relayed, ++sent);
        }
    }

    // From the others, beginning with what comes through this rank itself.
    Lane &lane = schedule.lanes.emplace_back();
    const auto wanted = static_cast<std::size_t>(std::ranges::count(schedule.receive_mask, 1));
    lane.steps().reserve(2 * wanted);
    for (std::size_t away = 0; away < members.size(); ++away) {
        const int at = members[(nodes.local_rank(rank) + away) % members.size()];
        std::uint32_t sent = 0;
        for (const int peer : at == rank ? senders : relays.senders_through(at)) {
            ++sent;
            if (schedule.receive_mask[static_cast<std::size_t>(peer)] == 0) continue;
            lane.wait_through(at, relayed, sent, peer);
            lane.copy(relays.place(peer, rank), problem.taken(peer, rank),
                      problem.block(peer, rank));
        }
    }
    return schedule;
}

}  // namespace vescomm::all_to_all_v
