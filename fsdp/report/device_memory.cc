// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/report/device_memory.h"

#include "fsdp/engine/device/readable_masters.h"
#include "fsdp/engine/device/slot_plan.h"
#include "fsdp/engine/device/support.h"

namespace vescomm::fsdp {

DeviceMemory::DeviceMemory(const Spec &spec, const ModelPlan &plan)
    : spec_(spec), plan_(plan), factors_(spec, plan), sum_codes_(plan) {
    device::require_options(spec);
    const auto bytes = [&](device::SlotUse use) { return device::SlotPlan(plan, use).bytes(); };
    slots = bytes(device::SlotUse::parameters);
    codes = bytes(device::SlotUse::codes);
    gradient_slots = bytes(device::SlotUse::gradients);
}

std::uint64_t DeviceMemory::sum_codes(int position) const {
    return sum_codes_.bytes(position);
}

std::uint64_t DeviceMemory::scratch(int position) const {
    return device::gradient_scratch_bytes(spec_, plan_, factors_, position);
}

std::uint64_t DeviceMemory::staged(int position) const {
    return device::staged_master_bytes(spec_, plan_, position);
}

bool DeviceMemory::has_shards() const {
    return spec_.options().offload_to_host == 0;
}

}  // namespace vescomm::fsdp
