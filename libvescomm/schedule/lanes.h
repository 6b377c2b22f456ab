// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace vescomm
