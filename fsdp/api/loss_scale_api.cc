// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The exported function of loss scales.
#include "fsdp/api/guard.h"
#include "fsdp/loss_scale.h"

namespace api = vescomm::fsdp;

vescomm_status_t vescomm_fsdp_update_loss_scale(vescomm_fsdp_loss_scale_t *scale, int32_t skipped) {
    return api::guarded("vescomm_fsdp_update_loss_scale", [&] {
        const auto ours = api::read_struct(scale, "scale", vescomm_fsdp_loss_scale_init());
        api::write_struct(scale, api::next_loss_scale(ours, skipped != 0), "scale");
    });
}
