// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Options and presets of tests of secondary copies.
#pragma once

#include <string>

#include "vescomm/fsdp.h"

namespace vescomm::fsdp::testing {

inline vescomm_fsdp_spec_options_t options_of(int slots = 2, vescomm_type_t compute_type = 0) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.slots = slots;
    options.compute_type = compute_type;
    return options;
}

inline std::string hpz(int ranks) {
    return "hpz:" + std::to_string(ranks);
}

}  // namespace vescomm::fsdp::testing
