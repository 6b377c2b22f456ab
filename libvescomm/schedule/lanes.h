// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "topology/nodes.h"

namespace vescomm {

// Which rank of `node` handles the traffic between that node and `peer`, a rank of another one: the
// one in the peer's own place, counted round. So every rank carries its share.
inline int lane_rank(const Nodes &nodes, int node, int peer) {
    const auto members = nodes.members(node);
    return members[nodes.local_rank(peer) % members.size()];
}

// The ranks of other nodes whose traffic with this rank's node `rank` handles, ascending.
inline std::vector<int> lane_peers(const Nodes &nodes, int rank) {
    std::vector<int> peers;
    const int node = nodes.node_of(rank);
    for (int peer = 0; peer < nodes.ranks(); ++peer)
        if (nodes.node_of(peer) != node && lane_rank(nodes, node, peer) == rank)
            peers.push_back(peer);
    return peers;
}

// No rank has more lane_peers(): a bound that every rank finds without looking at all of them.
inline std::int64_t most_lane_peers(const Nodes &nodes) {
    int smallest = nodes.ranks();
    for (int node = 0; node < nodes.count(); ++node)
        smallest = std::min(smallest, static_cast<int>(nodes.members(node).size()));
    std::int64_t most = 0;
    for (int node = 0; node < nodes.count(); ++node)
        most += (static_cast<int>(nodes.members(node).size()) + smallest - 1) / smallest;
    return most;
}

}  // namespace vescomm
