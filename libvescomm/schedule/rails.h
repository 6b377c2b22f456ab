// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedule/problem.h"

namespace vescomm {

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

// Numbers the ranks that send to a node through the same rail peer, so that a forwarding rank can
// keep something for each of them.
class RailIndex {
public:
    explicit RailIndex(const Nodes &nodes) : nodes_(nodes) {}

    // The number of `from` among the ranks that share its rail peer on `node`: below count(node).
    std::int64_t index(int from, int node) {
        const std::size_t size = nodes_.members(node).size();
        return first_of(nodes_.node_of(from), size) + nodes_.local_rank(from) / int(size);
    }
    // Bound of the numbers of all ranks.
    std::int64_t count(int node) { return first_of(nodes_.count(), nodes_.members(node).size()); }

private:
    // Numbers that the ranks of all nodes before `node` take, for a node of `size` ranks.
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

// Blocks that the ranks of a node receive through one forwarding rank, at most, over all nodes of
// several ranks: one for each sender and each receiver.
inline std::int64_t max_forwarded_blocks(const Nodes &nodes) {
    RailIndex index(nodes);
    std::int64_t max = 0;
    for (int node = 0; node < nodes.count(); ++node) {
        const auto size = static_cast<std::int64_t>(nodes.members(node).size());
        if (size > 1) max = std::max(max, index.count(node) * size);
    }
    return max;
}

// Forwarded blocks that every rank has space for, for each rank of the communicator. Nodes of very
// unequal sizes would need more and leave most of it unused: their blocks are not forwarded.
inline constexpr int forwarded_blocks_per_rank = 2;

// Peers in the order in which a rank should put to them: the next one after itself first, and
// round. When all ranks do so, no two of them begin with the same receiver.
inline std::vector<int> rotated_after(std::vector<int> peers, int rank) {
    // In the order of their nodes they need not ascend.
    if (!std::ranges::is_sorted(peers)) std::ranges::sort(peers);
    std::rotate(peers.begin(), std::ranges::upper_bound(peers, rank), peers.end());
    return peers;
}

// The order in which a rank should let peers put: who puts here first comes first.
inline std::vector<int> rotated_for(std::vector<int> peers, int rank) {
    peers = rotated_after(std::move(peers), rank);
    std::ranges::reverse(peers);
    return peers;
}

// Up to so many elements a put may come early (Step::early): the receiver keeps them, one copy
// more, and a message is spared, which between hosts takes several microseconds.
inline constexpr std::int64_t max_eager_elements = 16 * 1024;

// Whether a put of `count` elements from rank to rank of another node, each of which handles the
// other's traffic, may come early. Only where the sender needs something of the receiver as well:
// then neither is more than one operation ahead, and what is kept stays little.
inline bool is_eager(const Problem &problem, int from, int to, std::int64_t count) {
    const Nodes &nodes = problem.nodes;
    return count <= max_eager_elements && problem.size(from) > 0 && problem.size(to) > 0 &&
           rail_peer(nodes, nodes.node_of(to), from) == to &&
           rail_peer(nodes, nodes.node_of(from), to) == from;
}

// Tells the other ranks of the node, and waits until each has told.
inline void meet(Lane &lane, const Nodes &nodes, int rank, std::uint32_t flag) {
    const auto members = nodes.members(nodes.node_of(rank));
    if (members.size() > 1) lane.signal_node(flag, 1);
    for (const int peer : members)
        if (peer != rank) lane.wait(peer, flag, 1);
}

// Ranks of the node that has the fewest.
inline int smallest_node(const Nodes &nodes) {
    int smallest = nodes.ranks();
    for (int node = 0; node < nodes.count(); ++node)
        smallest = std::min(smallest, static_cast<int>(nodes.members(node).size()));
    return smallest;
}

inline int largest_node(const Nodes &nodes) {
    int largest = 0;
    for (int node = 0; node < nodes.count(); ++node)
        largest = std::max(largest, static_cast<int>(nodes.members(node).size()));
    return largest;
}

// True: some node has several ranks.
inline bool has_local_peers(const Nodes &nodes) {
    return nodes.count() < nodes.ranks();
}

// No rank has more rail_peers(): a bound that every rank finds without looking at all of them.
inline std::int64_t max_rail_peers(const Nodes &nodes) {
    const int smallest = smallest_node(nodes);
    std::int64_t max = 0;
    for (int node = 0; node < nodes.count(); ++node)
        max += (static_cast<int>(nodes.members(node).size()) + smallest - 1) / smallest;
    return max;
}

// A shard on its way between nodes, cut into chunks: one is summed while another is sent and a
// third comes in, and whoever sums finds it in the cache. 65,088 elements of 4 bytes are two
// messages over TCP; larger chunks only bound what a schedule of very much takes.
struct PutChunks {
    static constexpr std::int64_t min = 65'088;
    static constexpr std::int64_t max = 1024;

    std::int64_t count = 0;  // elements
    std::int64_t size = 0;
    explicit PutChunks(std::int64_t elements)
        : count(elements), size((elements / max / min + 1) * min) {}

    // Not 0, however little there is.
    std::uint32_t number() const {
        return static_cast<std::uint32_t>(std::max<std::int64_t>(1, (count + size - 1) / size));
    }
    std::int64_t begin(std::uint32_t chunk) const { return chunk * size; }
    std::int64_t elements(std::uint32_t chunk) const {
        return std::min(size, count - begin(chunk));
    }

    // At either end they take turns in a ring that stays in the cache. The receiver tells whenever
    // it has read so many that they are free; what it has read has also left the sender.
    static constexpr std::uint32_t ring = 8;
    static constexpr std::uint32_t freed = 4;
    std::int64_t place(std::uint32_t chunk) const { return chunk % ring * size; }
    std::int64_t room() const { return std::min(count, ring * size); }
    // Whether the receiver tells that it has read this chunk and those before it.
    bool tells_after(std::uint32_t chunk) const {
        return (chunk + 1) % freed == 0 && chunk + 1 + ring < number() + freed;
    }
    // How many chunks the receiver must have told of before this one may be put.
    std::uint32_t read_before(std::uint32_t chunk) const {
        return chunk < ring ? 0 : (chunk - ring + freed) / freed * freed;
    }
};

// Below this many elements, another rank that puts a part of them costs more than it saves.
inline constexpr std::int64_t min_slice = 2048;

// How many of `ranks` should share in putting `elements`.
inline int slices_for(int ranks, std::int64_t elements) {
    return static_cast<int>(std::clamp<std::int64_t>(elements / min_slice, 1, ranks));
}

}  // namespace vescomm
