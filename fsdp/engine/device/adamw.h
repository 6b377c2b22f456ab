// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamW on device memory, the one optimizer that has a kernel.
#pragma once

#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/narrow_masters.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp::device {

// True if the optimizer of a group has a kernel.
bool has_kernel(const Group &group);

// Puts an update of device memory on the reduce stream. The group must have a kernel. `run.master`:
// the address of masters in the type of `masters`.
void update(const Group &group, const vescomm_optimizer_run_t &run, const NarrowMasters &masters,
            Streams &streams);

}  // namespace vescomm::fsdp::device
