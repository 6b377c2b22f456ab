// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The input of vescomm-plan, common to built-in models, safetensors and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/formats/element_types.h"
#include "planner/formats/input_error.h"
#include "vescomm/vescomm.h"

namespace vescomm::planner {

using formats::bytes_of;
using formats::count_bytes;
using formats::count_elements;
using formats::InputError;
using formats::longest_name;
using formats::max_dimensions;
using formats::max_elements;
using formats::name_of;
using formats::packed_bits;
using formats::type_named;
using formats::type_names;

// A tensor as read from the input, before the rules for blocks and units are applied.
struct InputTensor {
    std::string name;
    std::vector<std::int64_t> shape;  // row-major
    vescomm_type_t type = VESCOMM_BF16;
    // The next two are set only if the input specifies them; otherwise the rules decide (rules.h).
    std::optional<std::int64_t> block_rows;  // -1: the whole tensor
    std::optional<std::int32_t> batch_dimensions;
    std::int64_t alignment = 0;  // elements; 0: only the alignment of all tensors
    std::string unit;  // empty: the rules decide
};

// Returns the contents of a file; `where` names it in the sentence of InputError. The limit is 256
// MiB; a list of 400,000 tensors has 60.
std::string read_text_file(const std::string &path, const std::string &where);

}  // namespace vescomm::planner
