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

namespace vescomm {

// One communicator on a fabric.
//
// How a put travels: as active messages [header | bytes] that the receiving side checks and copies
// to their place, raising the signal with the last one. Over TCP they are pieces of 130,176 bytes;
// over RDMA a large put is one message, which UCX moves by rendezvous from memory to memory. UCX's
// own one-sided put is not used: over TCP it is emulated, fifty times slower, and breaks assertions
// of UCX 1.13 when its endpoint is closed meanwhile.
//
// context    number of the communicator on the fabric, the same on all of its ranks, and not in
//            use. No rank may put before all have made their transport: let them meet in between.
// rank       of this process in the communicator
// peers      by rank of the communicator: the number of that process on the fabric, or -1 where it
//            is not reached over UCX (another rank of this node, or this rank)
// failure    told about a peer that is lost, or sends what it should not. Nothing is retried.
// on_signal  called, by whichever thread makes progress on the fabric, when a signal has arrived or
//            a put has ended that somebody may be waiting for. Both under the mutex of the fabric.
//
// Put::pending is counted down when the bytes and the signal have left this rank; at the latest,
// when stop() returns. Both sides must make progress for a large put.
//
// Throws INTERNAL where the fabric does not reach a peer, or the context is in use.
std::unique_ptr<Transport> make_ucx_transport(std::shared_ptr<UcxFabric> fabric,
                                              std::uint32_t context, int rank,
                                              const std::vector<int> &peers, Failure &failure,
                                              std::function<void()> on_signal);

}  // namespace vescomm
