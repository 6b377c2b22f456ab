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

#include "planner/formats/quoted.h"

namespace vescomm::planner {
namespace {

// Keeps sums and products of a few numbers in 64 bits.
constexpr std::int64_t max_elements = std::int64_t{1} << 62;
// Keeps products of residues in 64 bits; a page of bytes is 2^12.
constexpr std::int64_t max_alignment = std::int64_t{1} << 30;

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
               formats::quoted_text(tensor.name), fmt::join(tensor.shape, ", "));
    }
    if (tensor.batch_dimensions < 0 ||
        static_cast<std::size_t>(tensor.batch_dimensions) > tensor.shape.size()) {
        refuse("tensor {} has {} batch dimensions; with {} dimensions they must be in [0, {}]",
               formats::quoted_text(tensor.name), tensor.batch_dimensions, tensor.shape.size(),
               tensor.shape.size());
    }
    if (tensor.alignment < 0 || tensor.alignment > max_alignment) {
        refuse("tensor {} has an alignment of {} elements; it must be in [0, {}], 0 for none",
               formats::quoted_text(tensor.name), tensor.alignment, max_alignment);
    }
    if (tensor.block_rows < -1) {
        refuse("tensor {} has {} rows in a block; give -1 (whole), 0 or 1 (any row), or more",
               formats::quoted_text(tensor.name), tensor.block_rows);
    }
}

// `tensor` is checked and has elements. `whole`: one block for each sub-matrix, whatever
// block_rows is.
Grid grid_of(const Tensor &tensor, std::int64_t elements, bool whole) {
    const auto matrix = std::span(tensor.shape).subspan(tensor.batch_dimensions);
    const std::int64_t sub_matrix = product(matrix);
    if (whole || tensor.block_rows == -1) return Grid(elements, sub_matrix, sub_matrix);
    const std::int64_t row = matrix.empty() ? 1 : product(matrix.subspan(1));
    // Grid limits a block to the sub-matrix, so block_rows may exceed its rows.
    return Grid(elements, sub_matrix, times(std::max<std::int64_t>(tensor.block_rows, 1), row));
}

// `tensor` is checked.
std::int64_t start_alignment(const Tensor &tensor, const Options &options) {
    const std::int64_t alignment =
        least_common_multiple(options.start_alignment, std::max<std::int64_t>(tensor.alignment, 1));
    if (alignment > max_alignment) {
        refuse(
            "tensor {} starts at multiples of {} elements and of start_alignment, {}, so of their "
            "least common multiple, which must be at most {}",
            formats::quoted_text(tensor.name), tensor.alignment, options.start_alignment,
            max_alignment);
    }
    return alignment;
}

void check_alignment(const char *name, std::int64_t alignment) {
    if (alignment >= 1 && alignment <= max_alignment) return;
    refuse("{} is {} elements; it must be in [1, {}]", name, alignment, max_alignment);
}

void check_number(const char *name, double number, double low, double high) {
    if (number >= low && number <= high) return;  // false for NaN
    refuse("{} is {}; it must be in [{}, {}]", name, number, low, high);
}

void check(const Options &options) {
    if (options.mode < Mode::ragged || options.mode > Mode::automatic) {
        refuse(
            "mode {} is unknown; give ragged (0), uniform (1), balanced (2), owner (3) or "
            "automatic (4)",
            static_cast<std::int32_t>(options.mode));
    }
    check_alignment("start_alignment", options.start_alignment);
    check_alignment("cut_alignment", options.cut_alignment);
    if (options.shard_limit < 0) {
        refuse("shard_limit is {} elements; give at least 1, or 0 for no limit",
               options.shard_limit);
    }
    if (options.search_steps < 0) {
        refuse("search_steps is {}; give at least 0", options.search_steps);
    }
    constexpr double max_imbalance = 1e6;  // above any imbalance that can occur
    check_number("unit_imbalance", options.unit_imbalance, 0, max_imbalance);
    if (options.work != Work::muon && options.work != Work::elements) {
        refuse("work {} is unknown; give muon (0) or elements (1)",
               static_cast<std::int32_t>(options.work));
    }
    constexpr double much = 1e30;  // keeps sums finite
    check_number("costs.bytes_per_second", options.costs.bytes_per_second, 1e-30, much);
    check_number("costs.seconds_per_collective", options.costs.seconds_per_collective, 0, much);
    check_number("costs.seconds_per_unequal", options.costs.seconds_per_unequal, 0, much);
}

void check_weights(std::span<const std::int64_t> weights, int ranks, Mode mode) {
    if (weights.empty()) return;
    if (mode == Mode::uniform) {
        refuse(
            "uniform shards are equal and cannot follow the weights of {} ranks; leave the weights "
            "out, or give mode ragged (0) or balanced (2)",
            ranks);
    }
    if (mode == Mode::owner) {
        refuse(
            "mode owner gives every rank the same work and cannot follow the weights of {} ranks; "
            "leave the weights out, or give mode ragged (0) or balanced (2)",
            ranks);
    }
    if (weights.size() != static_cast<std::size_t>(ranks)) {
        refuse("there are {} weights for {} ranks; give one for each rank, or none", weights.size(),
               ranks);
    }
    std::int64_t sum = 0;
    for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        if (weights[rank] < 0) {
            refuse("the weight of rank {} is {}; give at least 0", rank, weights[rank]);
        }
        sum = plus(sum, weights[rank]);
    }
    if (sum == 0)
        refuse("all weights of {} ranks are 0; at least one rank must own something", ranks);
    if (sum > max_elements) {
        refuse("the weights of {} ranks add up to more than 2^62; give smaller ones", ranks);
    }
}

}  // namespace

Items to_items(const Problem &problem, const Options &options) {
    if (problem.ranks < 1 || problem.ranks > max_ranks) {
        refuse("a plan for {} ranks is impossible; give 1 to {}", problem.ranks, max_ranks);
    }
    check(options);
    check_weights(problem.weights, problem.ranks, options.mode);
    Items result;
    result.ranks = problem.ranks;
    result.alignment = options.start_alignment;
    std::int64_t common = 0;  // divides every start
    for (std::size_t i = 0; i < problem.tensors.size(); ++i) {
        const Tensor &tensor = problem.tensors[i];
        check(tensor);
        const std::int64_t elements = product(tensor.shape);
        if (elements == 0) {
            result.empty.push_back(i);
            continue;
        }
        const std::int64_t alignment = start_alignment(tensor, options);
        const std::int64_t max_gap = alignment - options.start_alignment;  // before the tensor
        result.max_occupied =
            plus(result.max_occupied, plus(round_up(elements, alignment), max_gap));
        if (result.max_occupied > max_elements) {
            refuse(
                "tensor {} of shape [{}] brings the number of elements above 2^62, the most a "
                "buffer may have",
                formats::quoted_text(tensor.name), fmt::join(tensor.shape, ", "));
        }
        common = std::gcd(common, alignment);
        result.alignment = least_common_multiple(result.alignment, alignment);
        if (result.alignment > max_alignment) result.alignment = unbounded;
        result.elements += elements;
        result.items.push_back(
            {i, grid_of(tensor, elements, options.mode == Mode::owner), alignment});
    }
    if (common == 0) return result;  // no tensor has elements
    // The end of the last tensor need not be aligned. The best order puts the tensor with most
    // padding last.
    std::int64_t slack = 0;
    for (const Item &item : result.items) {
        const std::int64_t padded = round_up(item.elements(), common);
        slack = std::max(slack, padded - item.elements());
        result.occupied += padded;
    }
    result.occupied -= slack;
    return result;
}

}  // namespace vescomm::planner
