// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/masters.h"

#include "fsdp/error.h"
#include "planner/formats/element_types.h"

namespace vescomm::fsdp {

void require_masters(const vescomm_fsdp_spec_options_t &options) {
    const vescomm_fsdp_rounding_t rounding = options.master_rounding;
    if (options.master_type != VESCOMM_F32 && options.master_type != VESCOMM_BF16)
        refuse("master_type is {}; it must be VESCOMM_F32 or VESCOMM_BF16, or 0 for f32",
               options.master_type);
    if (rounding != VESCOMM_FSDP_ROUND_NEAREST && rounding != VESCOMM_FSDP_ROUND_STOCHASTIC)
        refuse(
            "master_rounding is {}; it must be VESCOMM_FSDP_ROUND_STOCHASTIC (0) or "
            "VESCOMM_FSDP_ROUND_NEAREST (1)",
            rounding);
    if (rounding != 0 && options.master_type == VESCOMM_F32)
        refuse(
            "master_rounding is {}, and masters are f32, which are not rounded; set it to 0, or "
            "master_type to VESCOMM_BF16",
            rounding);
}

void require_gatherable(const std::string &name, vescomm_type_t type,
                        const vescomm_fsdp_spec_options_t &options) {
    if (options.master_type == VESCOMM_BF16 && type != VESCOMM_F32 && type != VESCOMM_BF16)
        refuse(
            "parameter \"{}\" is gathered in {}, and masters are bf16; gather it in f32 or bf16, "
            "or "
            "set master_type to VESCOMM_F32",
            name, formats::name_of(type));
}

}  // namespace vescomm::fsdp
