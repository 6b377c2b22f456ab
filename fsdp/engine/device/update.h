// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Optimizers on device memory: those of this library, and kinds of the program with a device_step.
#pragma once

#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/narrow_masters.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp::device {

// True if the optimizer of a group can update device memory, as it updates host memory.
bool has_update(const Group &group);

// Puts an update of device memory on the reduce stream. `matrix`: the run is one matrix, of a kind
// with device_matrix. Returns the result of the kind, which is 0 unless it fails.
int update(const Group &group, const vescomm_optimizer_run_t &run, bool matrix,
           const NarrowMasters &masters, Streams &streams);

}  // namespace vescomm::fsdp::device
