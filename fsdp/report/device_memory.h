// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory that an engine on device memory allocates beside shards. Pure.
#pragma once

#include <cstdint>

#include "fsdp/engine/device/gradient_factors.h"
#include "fsdp/engine/device/sum_codes.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

class DeviceMemory {
public:
    // The arguments must outlive the object. Throws Failure if an engine on device memory refuses
    // the specification.
    DeviceMemory(const Spec &spec, const ModelPlan &plan);

    // The same on all ranks.
    std::uint64_t slots = 0;
    std::uint64_t codes = 0;  // of parameters
    std::uint64_t gradient_slots = 0;

    std::uint64_t sum_codes(int position) const;  // of gradients
    std::uint64_t scratch(int position) const;
    std::uint64_t staged(int position) const;  // pinned memory of the host
    // True if masters, gradient shards and states are on the device.
    bool has_shards() const;

private:
    const Spec &spec_;
    const ModelPlan &plan_;
    device::GradientFactors factors_;
    device::SumCodes sum_codes_;
};

}  // namespace vescomm::fsdp
