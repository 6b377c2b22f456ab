// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/input/input.h"

namespace vescomm::planner {

// The tensors of a safetensors file, or of all *.safetensors in a folder. Only headers are read,
// a few megabytes of a model of a terabyte. The result is in natural order of names (layers.2
// before layers.10), so that a model gives the same plan however it was split into files.
//
// Throws InputError for whatever the safetensors library would refuse, and names the file.
std::vector<InputTensor> read_safetensors(const std::string &path);

// One header, without the 8 bytes of its length; the file has data_bytes after it. In order of
// data.
//
// Source: https://github.com/huggingface/safetensors, "Format".
std::vector<InputTensor> parse_safetensors_header(std::string_view header, std::int64_t data_bytes,
                                                  const std::string &where);

// The names of the files that an index names, sorted, each once. They are names of files beside the
// index: nothing that a download says may lead elsewhere.
std::vector<std::string> parse_safetensors_index(std::string_view text, const std::string &where);

// Digits compare as numbers.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace vescomm::planner
