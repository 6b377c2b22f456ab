// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The exported C functions of the planner: check, call, translate. The planner is a library of its
// own, which sees no more of libvescomm than its users do, so it keeps its own last sentence.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <type_traits>

#include "planner/order.h"
#include "vescomm/planner.h"
#include "vescomm/planner.hpp"

using vescomm::planner::Answer;
using vescomm::planner::Mode;
using vescomm::planner::Options;
using vescomm::planner::Problem;
using vescomm::planner::Tensor;

namespace {

// `explanation` points to a constant or into `text`.
thread_local std::string text;
thread_local const char *explanation = "";

void explain(const char *sentence, const char *more = "") noexcept {
    try {
        text = sentence;
        text += more;
        explanation = text.c_str();
    } catch (...) {
        explanation = "out of memory, even for the sentence that explains the plan";
    }
}

template <typename... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values &&...values) {
    throw std::invalid_argument(
        fmt::format("vescomm_plan: {}", fmt::format(format, std::forward<Values>(values)...)));
}

// Far above any struct there will be: a larger size means that nobody set it.
constexpr std::size_t largest_struct_bytes = 4096;

// Append-only structs, as in vescomm.h: members that the caller's header does not have are zero,
// and members that this library does not have must be.
template <typename Struct>
std::size_t struct_size(const Struct *theirs, const std::string &what) {
    static_assert(std::is_trivially_copyable_v<Struct> && offsetof(Struct, struct_size) == 0);
    std::uint32_t size = 0;
    std::memcpy(&size, theirs, sizeof(size));
    if (size < sizeof(size) || size > largest_struct_bytes) {
        refuse(
            "struct_size of {} is {}; make the struct with the inline function of its name, which "
            "sets it",
            what, size);
    }
    return size;
}

template <typename Struct>
Struct read_struct(const Struct *theirs, const std::string &what) {
    const std::size_t size = struct_size(theirs, what);
    const auto *bytes = reinterpret_cast<const unsigned char *>(theirs);
    for (std::size_t i = sizeof(Struct); i < size; ++i) {
        if (bytes[i] == 0) continue;
        refuse(
            "{} is a struct of {} bytes that uses byte {}, and this library knows {} bytes of it; "
            "leave newer members zero, or load a newer library",
            what, size, i, sizeof(Struct));
    }
    Struct ours{};
    std::memcpy(&ours, theirs, std::min(size, sizeof(Struct)));
    return ours;
}

Tensor to_tensor(const vescomm_planner_tensor_t &tensor, std::size_t index) {
    if (tensor.name == nullptr) refuse("the name of tensor {} is NULL", index);
    if (tensor.reserved != 0) {
        refuse("reserved of tensor {} is {}; leave it zero", index, tensor.reserved);
    }
    if (tensor.dimensions < 0) {
        refuse("tensor {} has {} dimensions; give at least 0 (a scalar)", index, tensor.dimensions);
    }
    if (tensor.dimensions > 0 && tensor.shape == nullptr) {
        refuse("the shape of tensor {} is NULL, and it has {} dimensions", index,
               tensor.dimensions);
    }
    Tensor result;
    result.name = tensor.name;
    result.shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
    result.block_rows = tensor.block_rows;
    result.batch_dimensions = tensor.batch_dimensions;
    return result;
}

Problem to_problem(const vescomm_planner_tensor_t *tensors, std::size_t count, std::int32_t ranks) {
    Problem problem;
    problem.ranks = ranks;
    if (count == 0) return problem;
    if (tensors == nullptr) refuse("tensors is NULL, and count is {}", count);
    // The elements of the array are as far apart as the caller's struct is long.
    const std::size_t stride = struct_size(tensors, "tensor 0");
    const auto *bytes = reinterpret_cast<const unsigned char *>(tensors);
    problem.tensors.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto *theirs = reinterpret_cast<const vescomm_planner_tensor_t *>(bytes + i * stride);
        const std::string what = fmt::format("tensor {}", i);
        if (struct_size(theirs, what) != stride) {
            refuse(
                "struct_size of tensor {} differs from that of tensor 0, {}; make every tensor "
                "with vescomm_planner_tensor()",
                i, stride);
        }
        problem.tensors.push_back(to_tensor(read_struct(theirs, what), i));
    }
    return problem;
}

Options to_options(const vescomm_planner_options_t *theirs) {
    Options options;
    if (theirs == nullptr) return options;
    const vescomm_planner_options_t given = read_struct(theirs, "options");
    options.mode = static_cast<Mode>(given.mode);
    if (given.start_alignment != 0) options.start_alignment = given.start_alignment;
    if (given.cut_alignment != 0) options.cut_alignment = given.cut_alignment;
    options.shard_limit = given.shard_limit;
    return options;
}

vescomm_planner_figures_t to_figures(const Answer &answer) {
    vescomm_planner_figures_t figures = vescomm_planner_figures();
    figures.optimal = answer.optimal ? 1 : 0;
    figures.elements = answer.elements;
    figures.padding = answer.padding;
    figures.largest_shard = answer.largest_shard;
    figures.lower_bound = answer.lower_bound;
    figures.mean_shard = answer.mean_shard;
    for (const vescomm::planner::Order &order : vescomm::planner::orders()) {
        if (order.name == answer.order) figures.order = order.name.data();
    }
    return figures;
}

void write_figures(vescomm_planner_figures_t *theirs, const vescomm_planner_figures_t &ours,
                   std::size_t size) {
    constexpr std::size_t header = sizeof(std::uint32_t);
    const std::size_t known = std::min(size, sizeof(ours));
    auto *bytes = reinterpret_cast<unsigned char *>(theirs);
    std::memcpy(bytes + header, reinterpret_cast<const unsigned char *>(&ours) + header,
                known - header);
    std::memset(bytes + known, 0, size - known);
}

}  // namespace

vescomm_status_t vescomm_plan(const vescomm_planner_tensor_t *tensors, size_t count, int32_t ranks,
                              const vescomm_planner_options_t *options, vescomm_layout_t **layout,
                              vescomm_planner_figures_t *figures) {
    try {
        if (layout == nullptr) refuse("layout is NULL; it must be given");
        const std::size_t figures_size = figures == nullptr ? 0 : struct_size(figures, "figures");
        const Problem problem = to_problem(tensors, count, ranks);
        Answer answer = vescomm::planner::plan(problem, to_options(options));
        vescomm::planner::LayoutPointer made;
        if (answer.feasible) made = vescomm::planner::make_layout(problem, answer);
        if (figures != nullptr) write_figures(figures, to_figures(answer), figures_size);
        *layout = made.release();
        explain(answer.explanation.c_str());
        return VESCOMM_OK;
    } catch (const vescomm::planner::LayoutError &error) {
        explain(error.what());
        return error.status;
    } catch (const std::invalid_argument &error) {
        explain(error.what());
        return VESCOMM_ERROR_INVALID_ARGUMENT;
    } catch (const std::bad_alloc &) {
        explanation = "out of memory: an allocation failed; nothing happened";
        return VESCOMM_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        explain("internal error, please report: ", error.what());
        return VESCOMM_ERROR_INTERNAL;
    } catch (...) {
        explanation = "internal error of unknown type; please report";
        return VESCOMM_ERROR_INTERNAL;
    }
}

const char *vescomm_plan_explain(void) {
    return explanation;
}
