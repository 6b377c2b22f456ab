// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/transports.h"

#include "base/error.h"
#include "transport/node.h"
#if VESCOMM_HAVE_UCX
#include "transport/ucx.h"
#include "transport/ucx_worker.h"
#endif

namespace vescomm {

namespace {

// THE table. loopback is made by tests alone.
constexpr TransportHelp table[] = {
    {"node", "memory shared by the ranks of a node", true},
    {"ucx", "puts into registered memory of other nodes, over UCX", VESCOMM_HAVE_UCX != 0},
    {"loopback", "threads of one process as ranks, for tests", true},
};

}  // namespace

std::span<const TransportHelp> transports() {
    return table;
}

bool links_are_tcp() {
#if VESCOMM_HAVE_UCX
    return only_tcp();
#else
    return true;
#endif
}

Transports make_transports(const Nodes &nodes, Control &control, Failure &failure,
                           std::function<void()> on_signal, Deadline deadline) {
    Transports transports;
    transports.home = make_node_transport(nodes, control, failure, deadline);
    if (nodes.count() == 1) return transports;
#if VESCOMM_HAVE_UCX
    std::vector<bool> peers(nodes.ranks());
    for (int peer = 0; peer < nodes.ranks(); ++peer)
        peers[peer] = !nodes.together(control.rank(), peer);
    transports.wires.push_back(make_ucx_transport(control.rank(), nodes.ranks(), peers, control,
                                                  failure, std::move(on_signal), deadline));
#else
    (void)failure;
    (void)on_signal;
#endif
    return transports;
}

}  // namespace vescomm
