// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The exported C functions that plan one buffer.
#include <cstddef>
#include <cstdio>

#include "planner/api.h"
#include "planner/order.h"
#include "planner/owner.h"
#include "planner/search.h"

namespace vescomm::planner {
namespace {

// A plain array instead of a std::string, of which the destructor would run before those of other
// values of the thread, and these may plan. Sentences quote the beginning of a long name, so they
// fit.
constexpr std::size_t max_text_bytes = 4095;
thread_local char text[max_text_bytes + 1];

Tensor to_tensor(const char *function, const vescomm_planner_tensor_t &tensor,
                 const std::string &what) {
    if (tensor.name == nullptr) refuse_call(function, "the name of {} is NULL", what);
    if (tensor.reserved != 0) {
        refuse_call(function, "reserved of {} is {}; leave it zero", what, tensor.reserved);
    }
    if (tensor.dimensions < 0) {
        refuse_call(function, "{} has {} dimensions; give at least 0 (a scalar)", what,
                    tensor.dimensions);
    }
    if (tensor.dimensions > 0 && tensor.shape == nullptr) {
        refuse_call(function, "the shape of {} is NULL, and it has {} dimensions", what,
                    tensor.dimensions);
    }
    Tensor result;
    result.name = tensor.name;
    result.shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
    result.block_rows = tensor.block_rows;
    result.batch_dimensions = tensor.batch_dimensions;
    result.alignment = tensor.alignment;
    return result;
}

// Sets an option for which zero means the default and a negative number means 0.
void set_number(double &number, double given) {
    if (given != 0) number = given < 0 ? 0 : given;
}

}  // namespace

void explain(const char *sentence, const char *more) noexcept {
    std::snprintf(text, sizeof text, "%s%s", sentence, more);
}

std::vector<Tensor> to_tensors(const char *function, const vescomm_planner_tensor_t *tensors,
                               std::size_t count) {
    std::vector<Tensor> result;
    result.reserve(count);
    read_structs(function, tensors, count, "tensor",
                 [&](const vescomm_planner_tensor_t &tensor, const std::string &what) {
                     result.push_back(to_tensor(function, tensor, what));
                 });
    return result;
}

Options to_options(const char *function, const vescomm_planner_options_t *theirs) {
    Options options;
    if (theirs == nullptr) return options;
    const vescomm_planner_options_t given = read_struct(function, theirs, "options");
    if (given.reserved != 0) {
        refuse_call(function, "reserved of options is {}; leave it zero", given.reserved);
    }
    options.mode = static_cast<Mode>(given.mode);
    if (given.start_alignment != 0) options.start_alignment = given.start_alignment;
    if (given.cut_alignment != 0) options.cut_alignment = given.cut_alignment;
    options.shard_limit = given.shard_limit;
    options.search_steps = given.search_steps;
    set_number(options.unit_imbalance, given.unit_imbalance);
    options.work = static_cast<Work>(given.work);
    if (given.bytes_per_second != 0) options.costs.bytes_per_second = given.bytes_per_second;
    set_number(options.costs.seconds_per_collective, given.seconds_per_collective);
    set_number(options.costs.seconds_per_unequal, given.seconds_per_unequal);
    return options;
}

std::vector<std::int64_t> to_weights(const char *function, const vescomm_planner_options_t *theirs,
                                     std::int32_t ranks) {
    if (theirs == nullptr || ranks < 1) return {};
    const vescomm_planner_options_t given = read_struct(function, theirs, "options");
    if (given.weights == nullptr) return {};
    return {given.weights, given.weights + ranks};
}

vescomm_planner_figures_t to_figures(const Answer &answer) {
    vescomm_planner_figures_t figures = vescomm_planner_figures_init();
    figures.optimal = answer.optimal ? 1 : 0;
    figures.elements = answer.elements;
    figures.padding = answer.padding;
    figures.largest_shard = answer.largest_shard;
    figures.lower_bound = answer.lower_bound;
    figures.mean_shard = answer.mean_shard;
    for (const Order &order : orders()) {
        if (order.name == answer.order) figures.order = order.name.data();
    }
    for (const std::string_view name : {searched, by_owner}) {
        if (name == answer.order) figures.order = name.data();
    }
    figures.largest_over_share = answer.feasible ? answer.largest_over_share : 0;
    figures.steps = answer.steps;
    figures.lower_bound_over_share = answer.feasible ? answer.lower_bound_over_share : 0;
    return figures;
}

}  // namespace vescomm::planner

using namespace vescomm::planner;

vescomm_status_t vescomm_plan(const vescomm_planner_tensor_t *tensors, size_t count, int32_t ranks,
                              const vescomm_planner_options_t *options, vescomm_layout_t **layout,
                              vescomm_planner_figures_t *figures) {
    return guarded([&] {
        constexpr const char *function = "vescomm_plan";
        if (layout == nullptr) refuse_call(function, "layout is NULL; it must be given");
        const std::size_t size = figures == nullptr ? 0 : struct_size(function, figures, "figures");
        const Problem problem{to_tensors(function, tensors, count), ranks,
                              to_weights(function, options, ranks)};
        const Answer answer = plan(problem, to_options(function, options));
        LayoutPointer made;
        if (answer.feasible) made = make_layout(problem, answer);
        if (figures != nullptr) write_struct(figures, to_figures(answer), size);
        *layout = made.release();
        explain(answer.explanation.c_str());
    });
}

const char *vescomm_plan_explain(void) {
    return text;
}
