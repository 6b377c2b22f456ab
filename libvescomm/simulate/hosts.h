// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "simulate/shared_clock.h"
#include "topology/machine.h"
#include "topology/nodes.h"

namespace vescomm::internal {

// The hosts of a modelled machine: each has the cores of one or more nodes.
class SimulatedHosts {
public:
    // `node_speed`: MemorySpeed::node.
    SimulatedHosts(const Nodes &nodes, const Machine &machine, double node_speed)
        : nodes_(nodes), machine_(machine) {
        for (int node = 0; node < nodes.count(); ++node)
            if (index(host_of_node(node)) == cores_.size())
                cores_.emplace_back(machine.cores, node_speed);
        ranks_ahead_.resize(cores_.size());
        if (machine.cores <= 0) return;
        std::vector<int> ranks(cores_.size());
        for (int rank = 0; rank < nodes.ranks(); ++rank) ++ranks[index(host_of(rank))];
        for (std::size_t host = 0; host < ranks.size(); ++host)
            ranks_ahead_[host] = (ranks[host] + machine.cores - 1) / machine.cores - 1;
    }

    int host_of(int rank) const { return host_of_node(nodes_.node_of(rank)); }
    SharedClock &cores(int host) { return cores_[index(host)]; }
    // Delay until a rank sees an arrival: ranks that share cores must first get a core.
    double look_seconds(int rank) const {
        return machine_.switch_seconds * ranks_ahead_[index(host_of(rank))];
    }

private:
    static std::size_t index(int number) { return static_cast<std::size_t>(number); }
    int host_of_node(int node) const { return node / std::max(1, machine_.nodes_per_host); }

    const Nodes &nodes_;
    const Machine &machine_;
    std::vector<SharedClock> cores_;  // by host
    std::vector<int> ranks_ahead_;  // by host: ranks that run on a core before a waiting rank
};

}  // namespace vescomm::internal
