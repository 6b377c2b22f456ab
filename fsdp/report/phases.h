// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory that the phases of a step use. Pure.
#pragma once

#include <cstdint>

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// Sets forward_bytes, backward_bytes and step_bytes of a report whose other bytes of memory are
// set. `parameter_codes`: the part of code_bytes that holds parameters. `copied_gradient_bytes`:
// that of partner_bytes that holds gradients.
void set_phases(vescomm_fsdp_report_t &report, const Spec &spec, const ModelPlan &plan,
                std::uint64_t parameter_codes, std::uint64_t copied_gradient_bytes);

}  // namespace vescomm::fsdp
