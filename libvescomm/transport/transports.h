// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.h"
#include "bootstrap/control.h"
#include "topology/nodes.h"
#include "transport/transport.h"

namespace vescomm::internal {

// The transports of one communicator: one that maps this node, and those that reach other nodes.
struct Transports {
    std::unique_ptr<Transport> intra_node;
    std::vector<std::unique_ptr<Transport>> inter_node;
    std::string warning;  // for the log; empty: none

    // The transport to each of `ranks` ranks. Throws UNSUPPORTED if none reaches a rank.
    std::vector<Transport *> routes(int ranks) const;
};

// Choices of the user; must be equal on all ranks.
struct TransportOptions {
    std::string between_nodes = "auto";  // auto, tcp or ucx
    bool encrypted = false;  // encrypt traffic between nodes
};

// Makes the transports that the ranks need: shared memory within a node; between nodes UCX if every
// rank has RDMA, otherwise TCP. Collective over all ranks. `on_signal` is called during progress
// when something has arrived that a thread may be waiting for.
//
// Throws the errors of the transports, and
//   MISMATCH     the ranks were given different options
//   UNSUPPORTED  this build has no UCX, or UCX does not encrypt
Transports make_transports(const Nodes &nodes, Control &control, Failure &failure,
                           std::function<void()> on_signal, Deadline deadline,
                           const TransportOptions &options);

// True if links between nodes will be TCP, judged by this machine alone.
bool expects_tcp_links(const std::string &between_nodes);

// Description of a transport for --help, and whether this build has it.
struct TransportHelp {
    std::string_view name, what;
    bool built;
};
std::span<const TransportHelp> transports();

}  // namespace vescomm::internal
