// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/checkpoint/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fsdp/checkpoint/error.h"
#include "fsdp/checkpoint/files.h"
#include "planner/formats/element_types.h"

namespace vescomm::fsdp::checkpoint {
namespace {

[[noreturn]] void refuse(const std::string &sentence) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, sentence);
}

bool is_role(std::string_view role) {
    return !role.empty() && role.size() <= max_role_bytes &&
           std::ranges::all_of(role, [](unsigned char letter) {
               return letter < 0x80 && (std::isalnum(letter) != 0 || letter == '_' ||
                                        letter == '-' || letter == '.');
           });
}

}  // namespace

bool is_utf8(const std::string &text) {
    try {
        nlohmann::json(text).dump();
        return true;
    } catch (const nlohmann::json::type_error &) {
        return false;
    }
}

std::string describe(const Tensor &tensor) {
    return fmt::format("tensor {}, role {}", in_quotes(tensor.name), in_quotes(tensor.role));
}

void check_extra_bytes(std::size_t bytes, int rank) {
    if (bytes > static_cast<std::size_t>(max_extra_bytes))
        throw Error(
            VESCOMM_ERROR_INVALID_ARGUMENT,
            fmt::format("saving {} bytes of the program on rank {}; at most {} are possible, "
                        "write more to a file of your own",
                        bytes, rank, max_extra_bytes));
}

std::int64_t check_tensor(const Tensor &tensor, const std::string &where) {
    const auto complain = [&](const std::string &text) {
        refuse(fmt::format("{}: {}: {}", where, describe(tensor), text));
    };
    if (tensor.name.empty() || tensor.name.size() > max_name_bytes)
        complain(fmt::format("its name has {} bytes; give one of 1 to {} bytes", tensor.name.size(),
                             max_name_bytes));
    if (!is_utf8(tensor.name)) complain("its name is no UTF-8; rename it");
    if (!is_role(tensor.role))
        complain(fmt::format(
            "the role must be 1 to {} letters, digits, '_', '-' or '.', such as \"master\"",
            max_role_bytes));
    const std::size_t size = vescomm_type_get_bytes(tensor.type);
    if (size == 0)
        complain(fmt::format("there is no type {}; give a VESCOMM_* type", int{tensor.type}));
    if (!formats::safetensors_name_of(tensor.type))
        complain(
            fmt::format("safetensors has no type {}; save it as f64, with two for each element",
                        formats::name_of(tensor.type)));
    if (tensor.shape.size() > formats::max_dimensions)
        complain(fmt::format("it has {} dimensions; the most allowed is {}", tensor.shape.size(),
                             formats::max_dimensions));
    for (const std::int64_t extent : tensor.shape)
        if (extent < 0) complain(fmt::format("a dimension is {}; it must not be negative", extent));
    const auto elements = formats::count_elements(tensor.shape);
    if (!elements || *elements > formats::max_elements / static_cast<std::int64_t>(size))
        complain("its shape makes more than 2^62 bytes");
    return *elements;
}

std::int64_t check_piece(const Tensor &tensor, std::int64_t first, std::int64_t count,
                         const std::string &where) {
    const std::int64_t elements = check_tensor(tensor, where);
    if (first < 0 || count < 0 || first > elements || count > elements - first)
        refuse(fmt::format("{}: {}: {} elements from element {} on are not within its {} elements",
                           where, describe(tensor), count, first, elements));
    return count * formats::bytes_of(tensor.type);
}

std::string entry_name(const Tensor &tensor, std::int64_t first, std::int64_t count) {
    return fmt::format("{}/{}[{}:{}]", tensor.role, tensor.name, first, first + count);
}

std::string entry_name(const std::string &extra) {
    return "extra:" + extra;
}

}  // namespace vescomm::fsdp::checkpoint
