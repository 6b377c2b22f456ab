// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/input/input.h"

namespace vescomm::planner {

// Reads tensors from a JSON file, for models without another source:
//
//     {"tensors": [{"name": "layers.0.w1", "shape": [28672, 8192], "dtype": "bf16",
//                   "block_rows": 32, "block": "tensor", "batch_dims": 0, "align": 64,
//                   "unit": "layers.0"}, ...]}
//
// name and shape are required. dtype defaults to bf16, batch_dims to 0. block and block_rows
// exclude each other. align counts elements. Throws InputError for anything else, including unknown
// keys.
std::vector<InputTensor> read_tensor_file(const std::string &path);
std::vector<InputTensor> parse_tensor_list(std::string_view text, const std::string &where);

}  // namespace vescomm::planner
