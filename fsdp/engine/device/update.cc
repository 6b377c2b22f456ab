// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/update.h"

#include "fsdp/engine/device/adamw.h"

namespace vescomm::fsdp::device {

bool has_update(const Group &group) {
    const vescomm_optimizer_kind_t &kind = group.kind;
    if (kind.device_step != nullptr) return true;
    // A copy of the kind of AdamW, such as one with another name, has the same functions.
    const bool matrices_too = kind.matrix == nullptr || kind.device_matrix != nullptr;
    return kind.step == vescomm_optimizer_get_adamw()->step && matrices_too;
}

int update(const Group &group, const vescomm_optimizer_run_t &run, bool matrix,
           const NarrowMasters &masters, Streams &streams) {
    streams.write_masters();
    const vescomm_optimizer_kind_t &kind = group.kind;
    const auto call = matrix ? kind.device_matrix : kind.device_step;
    if (call != nullptr) return call(kind.context, group.settings.data(), &run, streams.reduce());
    update_by_adamw(group, run, masters, streams);
    return 0;
}

}  // namespace vescomm::fsdp::device
