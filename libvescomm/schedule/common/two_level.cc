// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/common/staged.h"
#include "schedule/forwarded.h"
#include "schedule/rails.h"

namespace vescomm::internal::common {

namespace {

// Flags that pass_blocks() does not use between these ranks.
enum Flag : std::uint32_t {
    clear_to_send = 0,  // to a rank of another node: its blocks for my node may come
    forwarded =
        3,  // to my node, value i: the blocks of the first i senders are in my staging buffer
    arrived = 3,  // a put from another node: the blocks of its sender for my node
};

// Forwarded blocks: which rank forwards them, and where they lie in its staging buffer. The same on
// every rank.
class Forwarding {
public:
    explicit Forwarding(const ArrayProblem &problem)
        : problem_(problem), nodes_(problem.nodes), rails_(problem.nodes) {
        const std::int64_t blocks = max_forwarded_blocks(nodes_);
        if (blocks == 0 || blocks > std::int64_t{forwarded_blocks_per_rank} * nodes_.ranks())
            return;
        scatter_ = problem.collective == Collective::scatter_v;
        blocks_ = scatter_ ? nodes_.largest() : blocks;
        block_ = largest_forwarded(problem, blocks_);
    }

    // Elements of the largest block that is forwarded; 0: none is.
    std::int64_t block() const { return block_; }

    // The part of the staging buffer for all other blocks.
    Extent rest() const { return beside_forwarded(problem_, blocks_); }

    // The block from `from` for `to`, in the staging buffer of the rail peer of `from`.
    Place place(int from, int to) {
        const int node = nodes_.node_of(to);
        const auto members = static_cast<std::int64_t>(nodes_.members(node).size());
        // The root is the only sender of a scatter_v.
        const std::int64_t sender = scatter_ ? 0 : rails_.index(from, node);
        return {rail_peer(nodes_, node, from), Region::staging,
                problem_.staging.begin + (sender * members + nodes_.local_rank(to)) * block_};
    }

    // The ranks that send through `rank`, in the order in which they put.
    std::vector<int> senders_through(int rank) const {
        if (!scatter_) return rotated_for(rail_peers(nodes_, rank), rank);
        const int node = nodes_.node_of(rank), root = problem_.root;
        const bool mine = nodes_.node_of(root) != node && rail_peer(nodes_, node, root) == rank;
        return mine ? std::vector<int>{root} : std::vector<int>{};
    }

private:
    const ArrayProblem &problem_;
    const Nodes &nodes_;
    RailIndex rails_;
    bool scatter_ = false;
    std::int64_t blocks_ = 0, block_ = 0;
};

}  // namespace

bool can_two_level(const ArrayProblem &problem) {
    if (problem.nodes.count() == 1) return false;
    const Forwarding forwarding(problem);
    return forwarding.block() > 0 && can_pass_blocks(problem, forwarding.rest());
}

// Two levels (2DH): a rank puts its blocks for the ranks of another node as one message into the
// staging buffer of its rail peer there, and each receiver copies its block from that. A node sends
// each other node one message for each of its ranks, instead of one for each pair of ranks.
//
//     node A                                node B
//     source 0 ──blocks for 2 and 3, one put──► staging 2 ─copy─► output 2, output 3
//     source 1 ──blocks for 2 and 3, one put──► staging 3 ─copy─► output 2, output 3
//
// Blocks of more than a few kilobytes go straight to their receivers, as blocks within the node do
// (common/staged.h): the bytes of such a message cost more than the message. Sender and receiver
// decide alike which way a block goes. The forwarding rank cannot: a rank knows only its own
// counts. The receivers advertise from which ranks they expect blocks (Schedule::receive_mask).
//
// Cost: a put for each other node, two passes over the bytes that it brings, as without forwarding,
// and one more wait within the node. Source: Hwang et al., "Tutel: Adaptive Mixture-of-Experts at
// Scale", MLSys 2023, where blocks and nodes have equal sizes and ranks exchange within their node
// first; that takes one more pass, but needs no receive masks.
Schedule two_level(const ArrayProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int ranks = problem.ranks(), node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    Forwarding forwarding(problem);
    const std::int64_t max = forwarding.block();
    // Eager only where the forwarding rank sends a block to the sender as well: the sender waits
    // for it.
    const auto eager = [&](int from, int through) {
        return problem.block(through, from) > 0 && is_forwarded(problem, from, through, max);
    };

    Schedule schedule = pass_blocks(problem, rank, forwarding.rest(), max);
    schedule.lanes.reserve(schedule.lanes.size() + static_cast<std::size_t>(nodes.count()) + 1);
    for (int peer = 0; peer < ranks; ++peer)
        schedule.receive_mask.push_back(is_forwarded(problem, peer, rank, max) ? 1 : 0);

    // Sends blocks to other nodes.
    std::vector<int> to;
    for (int away = 1; away < nodes.count(); ++away) {
        const auto others = nodes.members((node + away) % nodes.count());
        to.clear();
        for (const int peer : others)
            if (is_forwarded(problem, rank, peer, max)) to.push_back(peer);
        if (to.empty()) continue;
        const int through = rail_peer(nodes, nodes.node_of(to[0]), rank);
        Lane &lane = schedule.lanes.emplace_back();
        lane.steps().reserve(2 + to.size());
        // As in pass_blocks().
        if (eager(rank, through)) lane.acquire();
        lane.wait(through, clear_to_send, 1, eager(rank, through));
        for (const int peer : to)
            lane.put_forwarded(problem.given(rank, peer), forwarding.place(rank, peer),
                               problem.block(rank, peer), arrived, peer == to.back() ? 1 : 0, peer);
    }
    if (members.size() == 1) return schedule;

    // Forwards blocks to the local peers.
    const std::vector<int> senders = forwarding.senders_through(rank);
    if (!senders.empty()) {
        Lane &lane = schedule.lanes.emplace_back();
        lane.steps().reserve(1 + 3 * senders.size());
        lane.acquire();
        for (const int peer : senders)
            lane.signal_conditional(peer, clear_to_send, 1, eager(peer, rank));
        std::uint32_t sent = 0;
        for (const int peer : senders) {
            lane.wait_conditional(peer, arrived, 1);
            lane.signal_node(forwarded, ++sent);
        }
    }

    // Takes blocks from forwarding ranks, beginning with this rank itself.
    Lane &lane = schedule.lanes.emplace_back();
    const auto expected = static_cast<std::size_t>(std::ranges::count(schedule.receive_mask, 1));
    lane.steps().reserve(2 * expected);
    for (std::size_t away = 0; away < members.size(); ++away) {
        const int at = members[(nodes.local_rank(rank) + away) % members.size()];
        std::uint32_t sent = 0;
        for (const int peer : at == rank ? senders : forwarding.senders_through(at)) {
            ++sent;
            if (schedule.receive_mask[static_cast<std::size_t>(peer)] == 0) continue;
            lane.wait_forwarded(at, forwarded, sent, peer);
            lane.copy(forwarding.place(peer, rank), problem.taken(peer, rank),
                      problem.block(peer, rank));
        }
    }
    return schedule;
}

}  // namespace vescomm::internal::common
