// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <stdexcept>

namespace vescomm::planner {
namespace {

// Beyond this sums and products of a few numbers could leave 64 bits.
constexpr std::int64_t most_elements = std::int64_t{1} << 62;
// Keeps products of residues in 64 bits; a page of bytes is 2^12.
constexpr std::int64_t most_alignment = std::int64_t{1} << 30;

template <typename... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values &&...values) {
    throw std::invalid_argument(fmt::format(format, std::forward<Values>(values)...));
}

std::int64_t product(std::span<const std::int64_t> extents) {
    if (std::ranges::find(extents, 0) != extents.end()) return 0;
    std::int64_t result = 1;
    for (const std::int64_t extent : extents) result = times(result, extent);
    return result;
}

void check(const Tensor &tensor) {
    for (const std::int64_t extent : tensor.shape) {
        if (extent >= 0) continue;
        refuse("tensor {} of shape [{}] has a negative extent; extents must be at least 0",
               quoted(tensor.name), fmt::join(tensor.shape, ", "));
    }
    if (tensor.batch_dimensions < 0 ||
        static_cast<std::size_t>(tensor.batch_dimensions) > tensor.shape.size()) {
        refuse("tensor {} has {} batch dimensions; with {} dimensions they must be in [0, {}]",
               quoted(tensor.name), tensor.batch_dimensions, tensor.shape.size(),
               tensor.shape.size());
    }
    if (tensor.block_rows < -1) {
        refuse("tensor {} has {} rows in a block; give -1 (whole), 0 or 1 (any row), or more",
               quoted(tensor.name), tensor.block_rows);
    }
}

// `tensor` is checked and has elements.
Grid grid_of(const Tensor &tensor, std::int64_t elements) {
    const auto matrix = std::span(tensor.shape).subspan(tensor.batch_dimensions);
    const std::int64_t sub_matrix = product(matrix);
    if (tensor.block_rows == -1) return Grid(elements, sub_matrix, sub_matrix);
    const std::int64_t row = matrix.empty() ? 1 : product(matrix.subspan(1));
    // More rows than there are mean the whole sub-matrix: Grid cuts a block down to it.
    return Grid(elements, sub_matrix, times(std::max<std::int64_t>(tensor.block_rows, 1), row));
}

void check_alignment(const char *name, std::int64_t alignment) {
    if (alignment >= 1 && alignment <= most_alignment) return;
    refuse("{} is {} elements; it must be in [1, {}]", name, alignment, most_alignment);
}

}  // namespace

std::string quoted(const std::string &name) {
    constexpr std::size_t longest = 120;
    std::string text = "\"";
    for (const char character : name.substr(0, longest)) {
        const auto byte = static_cast<unsigned char>(character);
        if (byte < 0x20 || byte == 0x7f) {
            text += fmt::format("\\x{:02x}", byte);
        } else {
            text += character;
        }
    }
    return text + (name.size() > longest ? "...\"" : "\"");
}

Items to_items(const Problem &problem, const Options &options) {
    if (problem.ranks < 1) {
        refuse("a plan for {} ranks is impossible; give at least 1", problem.ranks);
    }
    if (options.mode != Mode::ragged && options.mode != Mode::uniform) {
        refuse("mode {} is unknown; give ragged (0) or uniform (1)",
               static_cast<std::int32_t>(options.mode));
    }
    check_alignment("start_alignment", options.start_alignment);
    check_alignment("cut_alignment", options.cut_alignment);
    if (options.shard_limit < 0) {
        refuse("shard_limit is {} elements; give at least 1, or 0 for no limit",
               options.shard_limit);
    }
    Items result;
    result.ranks = problem.ranks;
    std::int64_t slack = 0;  // the last tensor's end need not be aligned: the one that gains most
    for (std::size_t i = 0; i < problem.tensors.size(); ++i) {
        const Tensor &tensor = problem.tensors[i];
        check(tensor);
        const std::int64_t elements = product(tensor.shape);
        if (elements == 0) {
            result.empty.push_back(i);
            continue;
        }
        const std::int64_t room = round_up(elements, options.start_alignment);
        result.occupied = plus(result.occupied, room);
        if (result.occupied > most_elements) {
            refuse(
                "tensor {} of shape [{}] brings the number of elements above 2^62, the most a "
                "buffer may have",
                quoted(tensor.name), fmt::join(tensor.shape, ", "));
        }
        slack = std::max(slack, room - elements);
        result.elements += elements;
        result.items.push_back({i, grid_of(tensor, elements)});
    }
    result.occupied -= slack;
    return result;
}

}  // namespace vescomm::planner
