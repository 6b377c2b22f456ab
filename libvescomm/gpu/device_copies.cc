// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_copies.h"

#include <algorithm>

#include "gpu/device_peers.h"
#include "gpu/peer_links.h"

namespace vescomm::internal::device {
namespace {

bool by_copies(const RaggedCall &call) {
    return call.method == DeviceMethod::copy_engine;
}

void meet(DeviceCommunicator &comm, cuda::Stream stream) {
    const gpu_kernel::PeerMeeting parameters{comm.peer_links()->barrier()};
    launch_peers(comm, Kernel::peer_meet, 1, &parameters, stream);
}

// Each rank begins with the next one, so that not all read the same memory at a time.
// cudaMemcpyBatchAsync() would start all copies at once, but cannot be captured into a graph.
void copy(DeviceCommunicator &comm, const RaggedCall &call, cuda::Stream stream) {
    const DevicePlacement &shards = *call.placement;
    for (int k = 1; k < comm.ranks(); ++k) {
        const int rank = (comm.rank() + k) % comm.ranks();
        if (shards.bytes(rank) == 0) continue;
        const std::uint64_t begin = shards.begin(rank);
        comm.copy(call.whole + begin, call.peers[static_cast<std::size_t>(rank)] + begin,
                  shards.bytes(rank), stream);
    }
}

}  // namespace

void run_copies(DeviceCommunicator &comm, std::span<const RaggedCall> calls, cuda::Stream stream) {
    if (comm.ranks() == 1 || std::ranges::none_of(calls, by_copies)) return;
    comm.keep_windows();
    meet(comm, stream);
    for (const RaggedCall &call : calls)
        if (by_copies(call)) copy(comm, call, stream);
    meet(comm, stream);
}

}  // namespace vescomm::internal::device
