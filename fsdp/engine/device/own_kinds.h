// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The optimizers of this library on device memory: AdamW, 8-bit AdamW and SGD.
#pragma once

#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/narrow_masters.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp::device {

// Puts an update of device memory on the reduce stream. `run.master`: the address of masters in the
// type of `masters`.
using OwnUpdate = void(const Group &group, const vescomm_optimizer_run_t &run,
                       const NarrowMasters &masters, Streams &streams);

// Returns the update that has the results of `step` of the kind of a group, or nullptr. A copy of a
// kind, such as one with another name, has the same `step`.
OwnUpdate *own_update(const Group &group);

}  // namespace vescomm::fsdp::device
