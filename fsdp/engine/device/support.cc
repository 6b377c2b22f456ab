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

void require_update(const Group &group, const vescomm_fsdp_spec_options_t &options) {
    const vescomm_optimizer_kind_t &kind = group.kind;
    if (!has_update(group))
        refuse_on_device(
            fmt::format("optimizer \"{}\" has no device_step and is", kind.name),
            "use one of vescomm, give its kind a device_step, set offload_to_host to 1");
    const bool of_program = kind.device_step != nullptr || kind.device_matrix != nullptr;
    if (options.master_type != VESCOMM_F32 && of_program)
        refuse_on_device(fmt::format("masters in {} with the functions of optimizer \"{}\" are",
                                     formats::name_of(options.master_type), kind.name),
                         "set master_type to VESCOMM_F32, set offload_to_host to 1");
    if (options.partner_copy != 0 && (kind.matrix == nullptr) != (kind.device_matrix == nullptr))
        refuse_on_device(
            fmt::format("partner_copy with optimizer \"{}\", which has one of matrix and "
                        "device_matrix, is",
                        kind.name),
            "give its kind both, set offload_to_host to 1");
}

}  // namespace

void require_options(const Spec &spec) {
    if (spec.options().offload_to_host != 0) return;  // every optimizer runs on the host
    if (!spec.offload_folder().empty())
        refuse_on_device("offload_folder without offload_to_host is", "set offload_to_host to 1");
    for (const Group &group : spec.groups()) require_update(group, spec.options());
}

void require_support(const Spec &spec) {
    if (spec.options().memory != VESCOMM_FSDP_DEVICE) return;
    require_options(spec);
    functions();
    if (const vescomm_status_t status = vescomm_gpu_check_kernels(); status != VESCOMM_OK)
        throw Failure(status, vescomm_get_last_error());
}

}  // namespace vescomm::fsdp::device
