// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedule/problem.h"

namespace vescomm::internal {

// Rail peers: the rank of `node` that exchanges data with `peer`, a rank of another node. It is the
// rank with the same local rank, modulo the size of `node`, so every rank carries its share.
inline int rail_peer(const Nodes &nodes, int node, int peer) {
    const auto members = nodes.members(node);
    return members[nodes.local_rank(peer) % members.size()];
}

// The ranks of other nodes that have `rank` as their rail peer on its node, ascending. Cost:
// O(peers) where nodes have consecutive ranks; a sort for other placements.
inline std::vector<int> rail_peers(const Nodes &nodes, int rank) {
    std::vector<int> peers;
    const int node = nodes.node_of(rank);
    const std::size_t size = nodes.members(node).size();
    for (int other = 0; other < nodes.count(); ++other) {
        if (other == node) continue;
        const auto members = nodes.members(other);
        const auto first = static_cast<std::size_t>(nodes.local_rank(rank));
        for (std::size_t i = first; i < members.size(); i += size) peers.push_back(members[i]);
    }
    if (!std::ranges::is_sorted(peers)) std::ranges::sort(peers);
    return peers;
}

// Numbers the ranks that send to a node through the same rail peer. A forwarding rank thereby has a
// slot for each of them.
class RailIndex {
public:
    explicit RailIndex(const Nodes &nodes) : nodes_(nodes) {}

    // The number of `from` among the ranks that share its rail peer on `node`; less than
    // count(node).
    std::int64_t index(int from, int node) {
        const std::size_t size = nodes_.members(node).size();
        return first_of(nodes_.node_of(from), size) + nodes_.local_rank(from) / int(size);
    }
    // Upper bound of index() for any rank.
    std::int64_t count(int node) { return first_of(nodes_.count(), nodes_.members(node).size()); }

private:
    // First index of the ranks of `node`, at a receiving node of `size` ranks.
    std::int64_t first_of(int node, std::size_t size) {
        for (const Firsts &known : firsts_)
            if (known.size == size) return known.of_node[static_cast<std::size_t>(node)];
        Firsts &made = firsts_.emplace_back(Firsts{size, {0}});
        for (int other = 0; other < nodes_.count(); ++other)
            made.of_node.push_back(
                made.of_node.back() +
                static_cast<std::int64_t>((nodes_.members(other).size() + size - 1) / size));
        return made.of_node[static_cast<std::size_t>(node)];
    }
    struct Firsts {
        std::size_t size;
        std::vector<std::int64_t> of_node;
    };

    const Nodes &nodes_;
    std::vector<Firsts> firsts_;  // one for each size of a node
};

// Maximum number of blocks that one forwarding rank of any node with several ranks receives: one
// for each sender and each receiver.
inline std::int64_t max_forwarded_blocks(const Nodes &nodes) {
    RailIndex index(nodes);
    std::int64_t max = 0;
    for (int node = 0; node < nodes.count(); ++node) {
        const auto size = static_cast<std::int64_t>(nodes.members(node).size());
        if (size > 1) max = std::max(max, index.count(node) * size);
    }
    return max;
}

// Space for forwarded blocks at every rank, in blocks for each rank of the communicator. Nodes of
// very unequal sizes would need more and use little of it, so their blocks are not forwarded.
inline constexpr int forwarded_blocks_per_rank = 2;

// Peers in the order in which a rank should put to them: the next higher rank first, then
// cyclically. If all ranks do so, they all begin with different receivers.
inline std::vector<int> rotated_after(std::vector<int> peers, int rank) {
    // Peers in the order of their nodes do not always ascend.
    if (!std::ranges::is_sorted(peers)) std::ranges::sort(peers);
    std::rotate(peers.begin(), std::ranges::upper_bound(peers, rank), peers.end());
    return peers;
}

// Peers in the order in which a rank should clear them to send: the order in which they put to it.
inline std::vector<int> rotated_for(std::vector<int> peers, int rank) {
    peers = rotated_after(std::move(peers), rank);
    std::ranges::reverse(peers);
    return peers;
}

// Maximum elements of an eager put (Step::eager). The receiver keeps them, which costs one more
// copy, but saves a message, which takes several microseconds between hosts.
inline constexpr std::int64_t max_eager_elements = 16 * 1024;

// True if a put of `count` elements between ranks of different nodes may be eager. Each must be the
// rail peer of the other, and the sender must also receive from the receiver. Then a rank completes
// no operation before the other has started it. A rank that starts many without a wait puts in the
// slots that it has acquired, or into buffers until its budget is used up (transport/eager_flow.h),
// so few eager puts are kept.
inline bool is_eager(const Problem &problem, int from, int to, std::int64_t count) {
    const Nodes &nodes = problem.nodes;
    return count <= max_eager_elements && problem.size(from) > 0 && problem.size(to) > 0 &&
           rail_peer(nodes, nodes.node_of(to), from) == to &&
           rail_peer(nodes, nodes.node_of(from), to) == from;
}

// The same in a collective whose data goes from the root, or to it: senders wait for nobody. The
// budget of each bounds what a receiver keeps of it, so a gather_v has only few such senders.
inline constexpr int max_eager_senders = 8;
inline bool is_eager_one_way(const Problem &problem, std::int64_t count) {
    const Nodes &nodes = problem.nodes;
    const auto remote = [&] {
        return nodes.ranks() - static_cast<int>(nodes.members(nodes.node_of(problem.root)).size());
    };
    return count <= max_eager_elements &&
           (problem.collective != Collective::gather_v || remote() <= max_eager_senders);
}

// Barrier among the ranks of a node.
inline void meet(Lane &lane, const Nodes &nodes, int rank, std::uint32_t flag) {
    const auto members = nodes.members(nodes.node_of(rank));
    if (members.size() > 1) lane.signal_node(flag, 1);
    for (const int peer : members)
        if (peer != rank) lane.wait(peer, flag, 1);
}

// True if some node has several ranks.
inline bool has_local_peers(const Nodes &nodes) {
    return nodes.count() < nodes.ranks();
}

// Upper bound of the number of rail_peers() of a rank. It is the same on every rank. Cost:
// O(nodes).
inline std::int64_t max_rail_peers(const Nodes &nodes) {
    const int smallest = nodes.smallest();
    std::int64_t max = 0;
    for (int node = 0; node < nodes.count(); ++node)
        max += (static_cast<int>(nodes.members(node).size()) + smallest - 1) / smallest;
    return max;
}

}  // namespace vescomm::internal
