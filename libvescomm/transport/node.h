// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "bootstrap/control.h"
#include "topology/nodes.h"
#include "transport/transport.h"

namespace vescomm::internal {

// Shared memory between the ranks of one node. Maps anonymous files that are passed by descriptor,
// and raises signals on a board in one of them. Nothing remains when the last process has ended, in
// whatever way.
//
// Collective over all ranks of the communicator. The control plane is borrowed for the life of the
// transport.
std::unique_ptr<Transport> make_node_transport(const Nodes &nodes, Control &control,
                                               Deadline deadline);

}  // namespace vescomm::internal
