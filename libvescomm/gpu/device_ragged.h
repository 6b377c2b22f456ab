// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls of NCCL and the copies that carry out ragged collectives.
#pragma once

#include <span>
#include <vector>

#include "gpu/device_communicator.h"
#include "gpu/device_method.h"
#include "gpu/device_placement.h"

namespace vescomm::internal::device {

// The type and the operator of a reduction.
struct Reduction {
    nccl::Type type = nccl::u8;
    nccl::Op op = nccl::sum;
    vescomm_type_t own_type = VESCOMM_U8;
    vescomm_op_t own_op = VESCOMM_SUM;
};

// One ragged collective, by one method that suits it.
struct RaggedCall {
    // The shards in the whole buffer; used during the call only.
    const DevicePlacement *placement = nullptr;
    DeviceMethod method = DeviceMethod::rooted;
    const Reduction *reduction = nullptr;  // reduce_scatter_v; nullptr: all_gather_v
    char *whole = nullptr;  // the whole buffer
    char *shard = nullptr;  // of this rank, in `whole` or beside it; all_gather_v only reads it
    char *workspace = nullptr;  // padded_bytes(), for `padded`
    // For `peer` and `copy_engine`: the address of the whole buffer of each rank.
    std::vector<char *> peers;
    DeviceCall::Place place;  // of `whole`, if there are elements
    DeviceCall::Place shard_place;  // of `shard`: DeviceCall::source
};

// The call as it is compared between ranks.
DeviceCall device_call(const RaggedCall &call, vescomm_type_t type);

// Puts the calls on the stream: copies to workspaces, all calls of NCCL in one group, copies from
// workspaces, kernels of `peer`, and copies of `copy_engine` between two meetings. Buffers and
// workspaces of different calls do not overlap.
void run(DeviceCommunicator &comm, std::span<const RaggedCall> calls, cuda::Stream stream);

}  // namespace vescomm::internal::device
