// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/engine/device/support.h"

#include "fsdp/engine/device/cuda.h"
#include "fsdp/engine/device/update.h"
#include "fsdp/error.h"
#include "planner/formats/element_types.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

namespace {

[[noreturn]] void refuse_on_device(const std::string &what, const std::string &advice) {
    throw Failure(VESCOMM_ERROR_UNSUPPORTED,
                  fmt::format("{} not supported on device memory; {}, or use VESCOMM_FSDP_HOST",
                              what, advice));
}

void require_update(const Group &group, vescomm_type_t master_type) {
    if (!has_update(group))
        refuse_on_device(fmt::format("optimizer \"{}\" has no device_step and is", group.kind.name),
                         "use AdamW, set offload_to_host to 1");
    if (master_type != VESCOMM_F32 && group.kind.device_step != nullptr)
        refuse_on_device(fmt::format("masters in {} with the device_step of optimizer \"{}\" are",
                                     formats::name_of(master_type), group.kind.name),
                         "set master_type to VESCOMM_F32, set offload_to_host to 1");
}

}  // namespace

void require_options(const Spec &spec, const ModelPlan &plan) {
    for (const Bucket &bucket : plan.buckets) {
        if (vescomm_type_get_bytes(bucket.type) == 1)
            refuse_on_device("parameters in f8 are", "use f32, bf16 or f16 as the compute type");
        if (bucket.replicated)
            refuse_on_device("replicated parameters are", "leave out VESCOMM_FSDP_REPLICATED");
        if (bucket.sums_quantised()) refuse_on_device("sums in 8 bits are", "set reduce_type to 0");
    }
    if (!spec.offload_folder().empty())
        refuse_on_device("masters in files are", "set offload_folder to NULL");
    if (spec.options().offload_to_host != 0) return;  // every optimizer runs on the host
    for (const Group &group : spec.groups()) require_update(group, spec.options().master_type);
}

void require_support(const Spec &spec, const ModelPlan &plan) {
    if (spec.options().memory != VESCOMM_FSDP_DEVICE) return;
    require_options(spec, plan);
    functions();
    if (const vescomm_status_t status = vescomm_gpu_check_kernels(); status != VESCOMM_OK)
        throw Failure(status, vescomm_get_last_error());
}

}  // namespace vescomm::fsdp::device
