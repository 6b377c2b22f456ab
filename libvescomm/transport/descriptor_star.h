// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "base/failure.h"
#include "bootstrap/control.h"
#include "topology/nodes.h"

namespace vescomm {

// Passes file descriptors between the ranks of a node, over Unix sockets that meet at its first
// rank. The socket's name lives in the abstract namespace: nothing is left in any file system.
//
// Whoever connects must know a random token that only travels through the authenticated control
// plane, and must be the same user.
class DescriptorStar {
public:
    // Collective over all ranks of the communicator (the names are exchanged through `control`).
    // `failure` ends every wait when it is set.
    DescriptorStar(const Nodes &nodes, Control &control, const Failure &failure, Deadline deadline);

    // Collective over the ranks of the node: the first rank's descriptor, a copy for every rank.
    // When the first rank has none to give (-1), the others throw.
    Descriptor broadcast(int descriptor, Deadline deadline);

    // Collective over the ranks of the node: everyone's, by local rank.
    std::vector<Descriptor> all_gather(int descriptor, Deadline deadline);

private:
    bool first() const { return local_rank_ == 0; }
    void welcome(Descriptor listener, const std::string &token, Deadline deadline);
    void join(const std::string &name, const std::string &token, Deadline deadline);

    const Failure &failure_;
    std::vector<int> members_;
    int local_rank_;
    std::vector<Descriptor> sockets_;  // at the first rank: by local rank; elsewhere: one, to it
};

}  // namespace vescomm
