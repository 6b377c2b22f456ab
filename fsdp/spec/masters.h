// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The type of masters, and how they are rounded. Pure.
#pragma once

#include <string>

#include "vescomm/fsdp.h"

namespace vescomm::fsdp {

// True for f32, bf16 and f16.
bool is_master_type(vescomm_type_t type) noexcept;

// Throws Failure unless master_type and master_rounding are valid. `options`: with a master_type.
void require_masters(const vescomm_fsdp_spec_options_t &options);

// Throws Failure if masters cannot be gathered in a type: neither of bf16 and f16 holds all values
// of the other one, and f8 holds those of none.
void require_gatherable(const std::string &name, vescomm_type_t type,
                        const vescomm_fsdp_spec_options_t &options);

}  // namespace vescomm::fsdp
