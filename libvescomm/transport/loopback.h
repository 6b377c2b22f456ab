// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "topology/nodes.h"
#include "transport/transport.h"

namespace vescomm {

// What the threads of one process share that play the ranks of a communicator, for tests: ranks of
// one pretended node map one another's memory, and puts to other nodes arrive when the target makes
// progress, as over a network, late and one at a time.
class LoopbackHub;

std::shared_ptr<LoopbackHub> make_loopback_hub(const Nodes &nodes);

// The transport of one rank. Threads: each rank's from its own.
std::unique_ptr<Transport> make_loopback_transport(std::shared_ptr<LoopbackHub> hub, int rank);

}  // namespace vescomm
