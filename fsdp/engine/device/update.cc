// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/update.h"

#include "fsdp/engine/device/own_kinds.h"

namespace vescomm::fsdp::device {

bool has_update(const Group &group) {
    const vescomm_optimizer_kind_t &kind = group.kind;
    if (kind.device_step != nullptr) return true;
    const bool matrices_too = kind.matrix == nullptr || kind.device_matrix != nullptr;
    return own_update(group) != nullptr && matrices_too;
}

int update(const Group &group, const vescomm_optimizer_run_t &run, bool matrix,
           const NarrowMasters &masters, Streams &streams) {
    streams.write_masters();
    const vescomm_optimizer_kind_t &kind = group.kind;
    const auto call = matrix ? kind.device_matrix : kind.device_step;
    if (call != nullptr) return call(kind.context, group.settings.data(), &run, streams.reduce());
    own_update(group)(group, run, masters, streams);
    return 0;
}

}  // namespace vescomm::fsdp::device
