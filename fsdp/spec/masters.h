// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The type of masters, and how they are rounded. Pure.
#pragma once

#include <string>

#include "vescomm/fsdp.h"

namespace vescomm::fsdp {

// Throws Failure unless master_type and master_rounding are valid. `options`: with a master_type.
void require_masters(const vescomm_fsdp_spec_options_t &options);

// Throws Failure if masters cannot be gathered in a type. Masters in bf16 have the range of f32:
// f16 and f8 cannot hold it, and f16 has no use for the bits that it has beyond bf16.
void require_gatherable(const std::string &name, vescomm_type_t type,
                        const vescomm_fsdp_spec_options_t &options);

}  // namespace vescomm::fsdp
