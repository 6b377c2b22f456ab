// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Dynamic loss scaling. Pure.
#pragma once

#include "vescomm/loss_scale.h"

namespace vescomm::fsdp {

// Returns the loss scale after a step. Throws Failure if a member is out of range.
vescomm_fsdp_loss_scale_t next_loss_scale(vescomm_fsdp_loss_scale_t scale, bool skipped);

}  // namespace vescomm::fsdp
