// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "fsdp/spec/model_plan.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// Values that all parts of an engine read. Immutable.
struct Model {
    Spec spec;
    ModelPlan plan;
    std::vector<std::string> unit_names;
};

}  // namespace vescomm::fsdp
