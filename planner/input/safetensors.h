// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/input/input.h"

namespace vescomm::planner {

// Reads the tensors of a safetensors file, or of all *.safetensors in a folder. Reads only headers,
// a few megabytes of a model of a terabyte. The result is in natural order of names (layers.2
// before layers.10), so that the plan does not depend on how the model is split into files.
//
// Throws InputError, which names the file, for everything that the safetensors library refuses.
std::vector<InputTensor> read_safetensors(const std::string &path);

// Parses one header, without the 8 bytes of its length; data_bytes follow it in the file. The
// result is in order of data.
//
// Source: https://github.com/huggingface/safetensors, "Format".
std::vector<InputTensor> parse_safetensors_header(std::string_view header, std::int64_t data_bytes,
                                                  const std::string &where);

// Returns the file names in an index, sorted and unique. Names with a path are refused, so that a
// downloaded index cannot refer to files outside its folder.
std::vector<std::string> parse_safetensors_index(std::string_view text, const std::string &where);

// Natural order: sequences of digits compare as numbers.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace vescomm::planner
