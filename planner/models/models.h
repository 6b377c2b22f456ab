// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Public models, made from their hyper-parameters, so that their layouts can be planned without
// their files. Names are those of the Hugging Face checkpoints; counts equal the published ones.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "planner/input/input.h"

namespace vescomm::planner {

struct BuiltInModel {
    std::string_view name;  // "llama-3-70b"
    std::string_view summary;  // a line for --help
    std::vector<InputTensor> (*make)();
};

std::span<const BuiltInModel> built_in_models();

// Throws InputError, which lists the known names.
std::vector<InputTensor> make_built_in_model(std::string_view name);

}  // namespace vescomm::planner
