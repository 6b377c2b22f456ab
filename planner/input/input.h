// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What vescomm-plan reads, whatever it reads it from: built-in models, safetensors, JSON.
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

// The user's input cannot be used. The text is one sentence: what, where, the value, what to do.
struct InputError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A tensor before anyone has said how it may be cut.
struct InputTensor {
    std::string name;
    std::vector<std::int64_t> shape;  // row-major
    vescomm_type_t type = VESCOMM_BF16;
    // Only where the input says so; otherwise the rules decide (rules.h).
    std::optional<std::int64_t> block_rows;  // -1: the whole tensor
    std::optional<std::int32_t> batch_dimensions;
    std::int64_t alignment = 0;  // elements; 0: only what all tensors have
    std::string unit;
};

// A name is part of sentences, of regular expressions and of a terminal's lines.
constexpr std::size_t longest_name = 1024;
// As the planner has it: sums of a few products of this stay in 64 bits.
constexpr std::int64_t max_elements = std::int64_t{1} << 62;
// PyTorch's limit is 64; more dimensions are a mistake.
constexpr std::size_t max_dimensions = 64;

// Elements of a shape, or nothing when there are more than max_elements. Extents at least 0.
std::optional<std::int64_t> count_elements(const std::vector<std::int64_t> &shape);

// The whole file; `where` names it in the sentence of InputError. At most 256 MiB, since a list of
// 400,000 tensors has 60.
std::string read_text_file(const std::string &path, const std::string &where);

// The element types that have a name here, and their sizes.
std::string_view name_of(vescomm_type_t type);  // "bf16"
std::int64_t bytes_of(vescomm_type_t type);
// As vescomm, safetensors or PyTorch spell it: "bf16", "BF16", "torch.bfloat16".
std::optional<vescomm_type_t> type_named(std::string_view name);
std::string type_names();  // all of these, for sentences: "f32, bf16, ..."

// Types smaller than a byte, as safetensors has them ("F4", "F6_E2M3"), are planned as the bytes
// that hold them. The bits of such a type, or nothing.
std::optional<int> packed_bits(std::string_view name);
// Counts the last dimension in bytes. False: rows do not end with one, and nothing has changed.
bool count_bytes(std::vector<std::int64_t> &shape, int bits);

}  // namespace vescomm::planner
