// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_peers.h"

#include <algorithm>
#include <optional>

#include "gpu/kernel_library.h"
#include "gpu/peer_links.h"

namespace vescomm::internal::device {
namespace {

// Blocks for the work of the rank that has most: equal on all ranks, whose blocks meet.
unsigned blocks_for(std::uint64_t units, std::uint64_t per_block) {
    const std::uint64_t blocks = (units + per_block - 1) / per_block;
    return static_cast<unsigned>(std::clamp<std::uint64_t>(
        blocks, 1, static_cast<std::uint64_t>(gpu_kernel::max_peer_blocks)));
}

char *at(const RaggedCall &call, int owner, int shard) {
    return call.peers[static_cast<std::size_t>(owner)] + call.placement->begin(shard);
}

gpu_kernel::PeerReduce reduce(const DeviceCommunicator &comm, const RaggedCall &call) {
    const DevicePlacement &shards = *call.placement;
    const int own = comm.rank();
    gpu_kernel::PeerReduce made{};
    made.barrier = comm.peer_links()->barrier();
    for (int rank = 0; rank < comm.ranks(); ++rank) made.from[rank] = at(call, rank, own);
    // A rank reads its own memory at its own address, which NCCL need not map a second time.
    made.from[own] = call.shard;
    made.to = call.shard;
    made.count = static_cast<std::int64_t>(shards.bytes(own) / shards.element());
    const bool average = call.reduction->own_op == VESCOMM_AVERAGE;
    made.scale = average ? 1.0 / comm.ranks() : 1;
    made.type = call.reduction->own_type;
    made.op = average ? VESCOMM_SUM : call.reduction->own_op;
    made.blocks = blocks_for(shards.largest() / shards.element(), gpu_kernel::peer_tile_elements);
    return made;
}

gpu_kernel::PeerGather gather(const DeviceCommunicator &comm, const RaggedCall &call) {
    const DevicePlacement &shards = *call.placement;
    gpu_kernel::PeerGather made{};
    made.barrier = comm.peer_links()->barrier();
    for (int rank = 0; rank < comm.ranks(); ++rank) {
        made.from[rank] = at(call, rank, rank);
        made.to[rank] = call.whole + shards.begin(rank);
        made.bytes[rank] = static_cast<std::int64_t>(shards.bytes(rank));
    }
    made.blocks = blocks_for(shards.largest(), gpu_kernel::peer_tile_elements * 4);
    return made;
}

}  // namespace

void launch_peers(DeviceCommunicator &comm, Kernel kernel, unsigned blocks, const void *parameters,
                  cuda::Stream stream) {
    std::optional<Error> failure;
    comm.launch("cudaLaunchKernel()", [&] {
        try {
            kernel_library().launch(kernel, blocks, parameters, stream);
        } catch (const Error &error) {
            failure = error;
        }
    });
    // The other ranks wait for this one.
    if (failure)
        comm.fail(failure->status, "rank " + std::to_string(comm.rank()) + ": " + failure->what());
}

void run_peers(DeviceCommunicator &comm, const RaggedCall &call, cuda::Stream stream) {
    if (comm.ranks() == 1) return;
    comm.keep_windows();
    if (call.reduction != nullptr) {
        const gpu_kernel::PeerReduce parameters = reduce(comm, call);
        launch_peers(comm, Kernel::peer_reduce, parameters.blocks, &parameters, stream);
    } else {
        const gpu_kernel::PeerGather parameters = gather(comm, call);
        launch_peers(comm, Kernel::peer_gather, parameters.blocks, &parameters, stream);
    }
}

}  // namespace vescomm::internal::device
