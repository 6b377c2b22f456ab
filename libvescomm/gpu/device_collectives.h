// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives on device memory. They follow the earlier work of a stream, do not wait on the host,
// and may be captured into a graph. Each throws INVALID_ARGUMENT before it has any effect.
#pragma once

#include <cstdint>

#include "gpu/device_communicator.h"
#include "gpu/device_method.h"
#include "gpu/device_placement.h"
#include "layout/layout.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal::device {

// The shards of a layout in memory of the caller. Throws INVALID_ARGUMENT for a type that does not
// exist, and for a layout of another number of ranks.
DevicePlacement checked_placement(const char *function, const DeviceCommunicator &comm,
                                  const Layout &layout, vescomm_type_t type);

// The problem of a ragged collective.
DeviceProblem problem_of(const DeviceCommunicator &comm, const DevicePlacement &placement,
                         bool reduces);

// `source`: the shard of this rank; nullptr: in place. `output`: the whole buffer.
void all_gather_v(DeviceCommunicator &comm, const Layout &layout, vescomm_type_t type,
                  const void *source, void *output, cuda::Stream stream);
// `source`: the whole buffer. `output`: the shard of this rank; nullptr: in place.
void reduce_scatter_v(DeviceCommunicator &comm, const Layout &layout, vescomm_type_t type,
                      vescomm_op_t op, void *source, void *output, cuda::Stream stream);
void all_reduce(DeviceCommunicator &comm, const void *source, void *output, std::int64_t count,
                vescomm_type_t type, vescomm_op_t op, cuda::Stream stream);
void broadcast(DeviceCommunicator &comm, void *data, std::int64_t count, vescomm_type_t type,
               int root, cuda::Stream stream);

}  // namespace vescomm::internal::device
