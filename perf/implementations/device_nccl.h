// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/worker/serve.h"

namespace vescomm::perf {

// The ways in which programs call NCCL for a collective with unequal counts, which it lacks.
enum class NcclWay {
    equal,  // NCCL's own calls; equal shards only
    padded,  // one call on shards of the largest size, and copies between them and the buffer
    grouped,  // a group of one broadcast from each rank, or of one reduction to each rank
};

// NCCL, called directly. vescomm only passes the id of NCCL's communicator.
std::unique_ptr<Implementation> make_nccl_on_device(NcclWay way, const Worker &worker);

}  // namespace vescomm::perf
