// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamW on device memory.
#pragma once

#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/narrow_masters.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp::device {

// Puts an update of device memory on the reduce stream. The settings of the group are those of
// AdamW. `run.master`: the address of masters in the type of `masters`.
void update_by_adamw(const Group &group, const vescomm_optimizer_run_t &run,
                     const NarrowMasters &masters, Streams &streams);

}  // namespace vescomm::fsdp::device
