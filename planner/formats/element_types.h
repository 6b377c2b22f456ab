// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Names, sizes and limits of tensors in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm::formats {

// Limits names, which appear in messages and are matched by regular expressions.
constexpr std::size_t longest_name = 1024;
// The limit of the planner: sums of a few products of this stay in 64 bits.
constexpr std::int64_t max_elements = std::int64_t{1} << 62;
// PyTorch's limit is 64; more dimensions are a mistake.
constexpr std::size_t max_dimensions = 64;

// Returns the elements of a shape, or nothing when there are more than max_elements. Extents are at
// least 0.
std::optional<std::int64_t> count_elements(const std::vector<std::int64_t> &shape);

// Names and sizes of the element types.
std::string_view name_of(vescomm_type_t type);  // "bf16"
std::int64_t bytes_of(vescomm_type_t type);
// Accepts the names of vescomm, safetensors and PyTorch: "bf16", "BF16", "torch.bfloat16".
std::optional<vescomm_type_t> type_named(std::string_view name);
std::string type_names();  // all names, for messages: "f32, bf16, ..."

// Returns the name of a type in safetensors ("F8_E4M3"), or nothing for c128, which the format does
// not have.
std::optional<std::string_view> safetensors_name_of(vescomm_type_t type);

// Returns the bits of an element type of safetensors that is smaller than a byte ("F4", "F6_E2M3"),
// or nothing. Such tensors are read as the bytes that hold them.
std::optional<int> packed_bits(std::string_view name);
// Converts the last dimension from elements of `bits` to bytes. Returns false, with the shape
// unchanged, when rows do not end at a byte.
bool count_bytes(std::vector<std::int64_t> &shape, int bits);

}  // namespace vescomm::formats
