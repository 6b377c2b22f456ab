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

namespace vescomm {

// The transports of one communicator: the one that maps this node, and those to other nodes.
struct Transports {
    std::unique_ptr<Transport> intra_node;
    std::vector<std::unique_ptr<Transport>> inter_node;
    std::string warning;  // for the log, where not empty
};

// What the user may decide; the same on all ranks.
struct TransportOptions {
    std::string between_nodes = "auto";  // auto, tcp or ucx
    bool encrypted = false;  // what leaves the node
};

// Makes the transports that the ranks need: shared memory within a node, and between nodes UCX
// where every rank has RDMA, and TCP otherwise. Collective over all ranks. `on_signal` is called,
// during progress, when something arrived that somebody may be waiting for.
//
// Throws, beside what the transports throw
//   MISMATCH     the ranks were given different options
//   UNSUPPORTED  this build has no UCX, or UCX does not encrypt
Transports make_transports(const Nodes &nodes, Control &control, Failure &failure,
                           std::function<void()> on_signal, Deadline deadline,
                           const TransportOptions &options);

// Whether links between nodes will be TCP, as far as this machine can tell.
bool links_are_tcp(const std::string &between_nodes);

// For people: what there is, and whether this build has it.
struct TransportHelp {
    std::string_view name, what;
    bool built;
};
std::span<const TransportHelp> transports();

}  // namespace vescomm
