// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// UCX between nodes: puts into host memory and signals, over whatever network UCX finds, RDMA or
// TCP. The communicators of a process share the worker (ucx_fabric.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/failure.h"
#include "transport/transport.h"
#include "transport/ucx_fabric.h"

namespace vescomm::internal {

// One communicator on a fabric.
//
// A put is sent as active messages [header | bytes]. The receiver checks them, copies the bytes to
// their target, and raises the signal with the last one. Over TCP the messages are pieces of
// 130,176 bytes; over RDMA a large put is one message, which UCX moves by rendezvous from memory to
// memory. UCX's own one-sided put is not used: over TCP it is emulated, fifty times slower, and
// fails assertions of UCX 1.13 when its endpoint is closed meanwhile.
//
// context    number of the communicator on the fabric, equal on all of its ranks, and not in use.
//            All ranks must have made their transport before any rank puts: synchronise in between.
// rank       rank of this process in the communicator
// peers      by rank of the communicator: the number of its process on the fabric, or -1 if it is
//            not reached over UCX (another rank of this node, or this rank)
// failure    receives the loss of a peer, or an invalid message. Nothing is retried.
// on_signal  called by the thread that makes progress on the fabric, when a signal has arrived or a
//            put has ended that a thread may be waiting for. Like `failure`, it is called under the
//            mutex of the fabric.
//
// Put::pending is decremented when the bytes and the signal have left this rank, at the latest when
// stop() returns. Both sides must make progress for a large put.
//
// Throws INTERNAL if the fabric does not reach a peer or the context is in use.
std::unique_ptr<Transport> make_ucx_transport(std::shared_ptr<UcxFabric> fabric,
                                              std::uint32_t context, int rank,
                                              const std::vector<int> &peers, Failure &failure,
                                              std::function<void()> on_signal);

}  // namespace vescomm::internal
