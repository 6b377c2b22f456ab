// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The input of vescomm-plan, common to built-in models, safetensors and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm::planner {

// Thrown when the user's input cannot be used. The text is one sentence: what failed, where, the
// value, what to do.
struct InputError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

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

// Limits names, which appear in messages and are matched by regular expressions.
constexpr std::size_t longest_name = 1024;
// The limit of the planner: sums of a few products of this stay in 64 bits.
constexpr std::int64_t max_elements = std::int64_t{1} << 62;
// PyTorch's limit is 64; more dimensions are a mistake.
constexpr std::size_t max_dimensions = 64;

// Returns the elements of a shape, or nothing when there are more than max_elements. Extents are at
// least 0.
std::optional<std::int64_t> count_elements(const std::vector<std::int64_t> &shape);

// Returns the contents of a file; `where` names it in the sentence of InputError. The limit is 256
// MiB; a list of 400,000 tensors has 60.
std::string read_text_file(const std::string &path, const std::string &where);

// Names and sizes of the element types.
std::string_view name_of(vescomm_type_t type);  // "bf16"
std::int64_t bytes_of(vescomm_type_t type);
// Accepts the names of vescomm, safetensors and PyTorch: "bf16", "BF16", "torch.bfloat16".
std::optional<vescomm_type_t> type_named(std::string_view name);
std::string type_names();  // all names, for messages: "f32, bf16, ..."

// Returns the bits of an element type of safetensors that is smaller than a byte ("F4", "F6_E2M3"),
// or nothing. Such tensors are planned as the bytes that hold them.
std::optional<int> packed_bits(std::string_view name);
// Converts the last dimension from elements of `bits` to bytes. Returns false, with the shape
// unchanged, when rows do not end at a byte.
bool count_bytes(std::vector<std::int64_t> &shape, int bits);

}  // namespace vescomm::planner
