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

namespace vescomm {

// One communicator on a fabric.
//
// A put travels as messages [header | bytes] of up to 512 KiB, straight from the memory of the
// sender, and into that of the receiver. It ends when the kernel has taken all of it, and of the
// signals that were raised behind it meanwhile: its source may be reused then, and all of that
// arrives even if this rank makes no progress any more.
//
// context    number of the communicator on the fabric, the same on all of its ranks, and not in
// use.
//            No rank may put before all have made their transport: let them meet in between.
// rank       of this process in the communicator
// peers      by rank of the communicator: the number of that process on the fabric, or -1 where it
//            is not reached over TCP (another rank of this node, or this rank)
// failure    where a connection that ends, or a message that cannot be right, is reported
// on_signal  called, by whichever thread makes progress on the fabric, when a signal has arrived or
//            a put has ended that somebody may be waiting for. Both under the mutex of the fabric.
//
// Ordering: as Transport says. Completion: a put's pending counter falls when its bytes have left,
// and in any case, sent or not, when stop() returns.
std::unique_ptr<Transport> make_tcp_transport(std::shared_ptr<TcpFabric> fabric,
                                              std::uint32_t context, int rank,
                                              const std::vector<int> &peers, Failure &failure,
                                              std::function<void()> on_signal);

}  // namespace vescomm
