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
// Collective over the communicator. UCX itself is found at run time: no rank links it.
//
// How a put travels: as active messages [header | bytes] that the receiving side checks and copies
// to their place, raising the signal with the last one. Over TCP they are pieces of 130,176 bytes;
// over RDMA a large put is one message, which UCX moves by rendezvous from memory to memory. UCX's
// own one-sided put is not used: over TCP it is emulated, fifty times slower, and breaks assertions
// of UCX 1.13 when its endpoint is closed meanwhile.
//
// peers      by rank: whether it is on another node. If rank a has b as a peer, b must have a.
// control    used during this call only.
// failure    told about a peer that is lost, or sends what it should not. Nothing is retried.
// on_signal  called from within progress() after signals for this rank have arrived: wakes waiters.
//
// Put::pending is counted down when the bytes and the signal have left this rank; at the latest,
// when stop() returns. Both sides must make progress for a large put.
//
// Throws
//   UNSUPPORTED  UCX is not installed
//   SYSTEM       UCX has no device, or refuses; a peer's address is damaged
//   MISMATCH     the ranks have different versions of UCX
//   TIMEOUT      names the ranks that cannot be reached
//   PEER_FAILED  names the rank whose connection broke, or that gave up first
std::unique_ptr<Transport> make_ucx_transport(int rank, int ranks, const std::vector<bool> &peers,
                                              Control &control, Failure &failure,
                                              std::function<void()> on_signal, Deadline deadline);

}  // namespace vescomm
