// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// TCP between nodes: puts into host memory and signals, over authenticated connections that the
// communicators of a process share (tcp_fabric.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/failure.h"
#include "transport/tcp_fabric.h"
#include "transport/transport.h"

namespace vescomm::internal {

// One communicator on a fabric.
//
// A put is sent as messages [header | bytes] of up to 512 KiB, directly from the sender's memory
// into the receiver's. A put ends when the kernel has taken all of it and of the signals raised
// after it meanwhile. Its source may then be reused, and everything arrives even if this rank makes
// no further progress.
//
// context    number of the communicator on the fabric, equal on all of its ranks, and not in use.
//            All ranks must have made their transport before any rank puts: synchronise in between.
// rank       rank of this process in the communicator
// peers      by rank of the communicator: the number of its process on the fabric, or -1 if it is
//            not reached over TCP (another rank of this node, or this rank)
// failure    receives the end of a connection, or an invalid message
// on_signal  called by the thread that makes progress on the fabric, when a signal has arrived or a
//            put has ended that a thread may be waiting for. Like `failure`, it is called under the
//            mutex of the fabric.
//
// Ordering: see Transport. Completion: a put's pending counter is decremented when its bytes have
// left, and at the latest, sent or not, when stop() returns.
std::unique_ptr<Transport> make_tcp_transport(std::shared_ptr<TcpFabric> fabric,
                                              std::uint32_t context, int rank,
                                              const std::vector<int> &peers, Failure &failure,
                                              std::function<void()> on_signal);

}  // namespace vescomm::internal
