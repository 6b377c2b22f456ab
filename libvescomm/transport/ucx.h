// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// UCX between nodes: puts into host memory and signals, over whatever network UCX finds, RDMA or
// TCP.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "base/failure.h"
#include "bootstrap/control.h"
#include "transport/transport.h"

namespace vescomm {

// Connects this rank to its peers, and returns once every connection has worked in both directions.
// Collective over the communicator.
//
// peers      by rank: whether it is on another node. If rank a has b as a peer, b must have a.
// control    used during this call only.
// failure    told about a peer that is lost, or sends what it should not. When it is broken, so is
//            every endpoint: nothing is retried.
// on_signal  called from within progress() after signals for this rank have arrived: wakes waiters.
//
// Puts whose bytes overlap take effect in order over TCP. RDMA keeps the order of signals only; no
// schedule writes the same bytes twice without hearing from the target in between.
//
// Throws
//   UNSUPPORTED  UCX is not installed
//   SYSTEM       UCX has no device, or refuses; a peer's address is damaged
//   MISMATCH     the ranks have different versions of UCX
//   TIMEOUT      names the ranks that cannot be reached
//   PEER_FAILED  names the rank whose connection broke
std::unique_ptr<Transport> make_ucx_transport(int rank, int ranks, const std::vector<bool> &peers,
                                              Control &control, Failure &failure,
                                              std::function<void()> on_signal, Deadline deadline);

}  // namespace vescomm
