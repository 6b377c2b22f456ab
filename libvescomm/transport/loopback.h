// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "topology/nodes.h"
#include "transport/transport.h"

namespace vescomm::internal {

// State shared by the threads of one process that act as the ranks of a communicator, for tests.
// Ranks of one emulated node map one another's memory. Puts to other nodes arrive when the target
// makes progress, late and one at a time, as over a network.
class LoopbackNetwork;

std::shared_ptr<LoopbackNetwork> make_loopback_network(const Nodes &nodes);

// The transport of one rank. Threads: each rank calls its own transport from its own thread.
std::unique_ptr<Transport> make_loopback_transport(std::shared_ptr<LoopbackNetwork> network,
                                                   int rank);

}  // namespace vescomm::internal
