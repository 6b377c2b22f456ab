// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/masters.h"

#include "fsdp/error.h"
#include "planner/formats/element_types.h"

namespace vescomm::fsdp {

bool is_master_type(vescomm_type_t type) noexcept {
    return type == VESCOMM_F32 || type == VESCOMM_BF16 || type == VESCOMM_F16;
}

void require_masters(const vescomm_fsdp_spec_options_t &options) {
    const vescomm_fsdp_rounding_t rounding = options.master_rounding;
    if (!is_master_type(options.master_type))
        refuse(
            "master_type is {}; it must be VESCOMM_F32, VESCOMM_BF16 or VESCOMM_F16, or 0 for f32",
            options.master_type);
    if (rounding != VESCOMM_FSDP_ROUND_NEAREST && rounding != VESCOMM_FSDP_ROUND_STOCHASTIC)
        refuse(
            "master_rounding is {}; it must be VESCOMM_FSDP_ROUND_STOCHASTIC (0) or "
            "VESCOMM_FSDP_ROUND_NEAREST (1)",
            rounding);
    if (rounding != 0 && options.master_type == VESCOMM_F32)
        refuse(
            "master_rounding is {}, and masters are f32, which are not rounded; set it to 0, or "
            "master_type to VESCOMM_BF16 or VESCOMM_F16",
            rounding);
}

void require_gatherable(const std::string &name, vescomm_type_t type,
                        const vescomm_fsdp_spec_options_t &options) {
    const vescomm_type_t master = options.master_type;
    if (master != VESCOMM_F32 && type != VESCOMM_F32 && type != master)
        refuse(
            "parameter \"{}\" is gathered in {}, and masters are {}; gather it in f32 or {}, or "
            "set master_type to VESCOMM_F32",
            name, formats::name_of(type), formats::name_of(master), formats::name_of(master));
}

}  // namespace vescomm::fsdp
