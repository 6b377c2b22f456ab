// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The exported C functions that plan whole models.
#include <memory>

#include "planner/api.h"
#include "vescomm/planner_model.hpp"

struct vescomm_model_plan {
    vescomm::planner::Model model;
    vescomm::planner::ModelAnswer answer;
};

namespace vescomm::planner {
namespace {

void require(const char *function, const void *argument, const char *name) {
    if (argument == nullptr) refuse_call(function, "{} is NULL; it must be given", name);
}

void require_unit(const char *function, const vescomm_plan_t &plan, std::size_t unit) {
    if (unit < plan.model.units.size()) return;
    refuse_call(function, "there is no unit {} in a plan of {}", unit, plan.model.units.size());
}

vescomm_planner_totals_t to_totals(const ModelAnswer &answer) {
    vescomm_planner_totals_t totals = vescomm_planner_totals_init();
    totals.mode = static_cast<vescomm_planner_mode_t>(answer.mode);
    totals.lower_bound_bytes = answer.lower_bound_bytes;
    if (!answer.feasible) return totals;
    totals.feasible = 1;
    totals.bytes = answer.bytes;
    totals.padding_bytes = answer.padding_bytes;
    totals.largest_rank_bytes = answer.largest_rank_bytes;
    totals.mean_rank_bytes = answer.mean_rank_bytes;
    totals.largest_over_share = answer.largest_over_share;
    totals.largest_rank_cost_over_mean = answer.largest_rank_cost_over_mean;
    totals.lower_bound_cost_over_mean = answer.lower_bound_cost_over_mean;
    totals.wire_bytes_per_step = answer.wire_bytes_per_step;
    totals.seconds_per_step = answer.seconds_per_step;
    return totals;
}

}  // namespace
}  // namespace vescomm::planner

using namespace vescomm::planner;

vescomm_status_t vescomm_plan_create(const vescomm_planner_unit_t *units, size_t count,
                                     int32_t ranks, const vescomm_planner_options_t *options,
                                     vescomm_plan_t **plan) {
    return guarded([&] {
        constexpr const char *function = "vescomm_plan_create";
        require(function, plan, "plan");
        auto made = std::make_unique<vescomm_plan_t>();
        Model &model = made->model;
        model.ranks = ranks;
        model.weights = to_weights(function, options, ranks);
        read_structs(function, units, count, "unit",
                     [&](const vescomm_planner_unit_t &unit, const std::string &what) {
                         if (unit.name == nullptr) {
                             refuse_call(function, "the name of {} is NULL", what);
                         }
                         model.units.push_back({unit.name, unit.type,
                                                to_tensors(function, unit.tensors, unit.count)});
                     });
        made->answer = vescomm::planner::plan(model, to_options(function, options));
        explain(made->answer.explanation.c_str());
        *plan = made.release();
    });
}

vescomm_status_t vescomm_plan_free(vescomm_plan_t *plan) {
    return guarded([&] { delete plan; });
}

vescomm_status_t vescomm_plan_get_units(const vescomm_plan_t *plan, size_t *count) {
    return guarded([&] {
        constexpr const char *function = "vescomm_plan_get_units";
        require(function, plan, "plan");
        require(function, count, "count");
        *count = plan->model.units.size();
    });
}

vescomm_status_t vescomm_plan_create_layout(const vescomm_plan_t *plan, size_t unit,
                                            vescomm_layout_t **layout) {
    return guarded([&] {
        constexpr const char *function = "vescomm_plan_create_layout";
        require(function, plan, "plan");
        require(function, layout, "layout");
        require_unit(function, *plan, unit);
        LayoutPointer made;
        if (plan->answer.feasible) made = make_layout(plan->model, plan->answer, unit);
        explain(plan->answer.explanation.c_str());
        *layout = made.release();
    });
}

vescomm_status_t vescomm_plan_get_figures(const vescomm_plan_t *plan, size_t unit,
                                          vescomm_planner_figures_t *figures) {
    return guarded([&] {
        constexpr const char *function = "vescomm_plan_get_figures";
        require(function, plan, "plan");
        require(function, figures, "figures");
        require_unit(function, *plan, unit);
        const std::size_t size = struct_size(function, figures, "figures");
        const bool feasible = plan->answer.feasible;
        explain(feasible ? plan->answer.units[unit]->explanation.c_str()
                         : plan->answer.explanation.c_str());
        write_struct(
            figures,
            feasible ? to_figures(*plan->answer.units[unit]) : vescomm_planner_figures_init(),
            size);
    });
}

vescomm_status_t vescomm_plan_get_totals(const vescomm_plan_t *plan,
                                         vescomm_planner_totals_t *totals) {
    return guarded([&] {
        constexpr const char *function = "vescomm_plan_get_totals";
        require(function, plan, "plan");
        require(function, totals, "totals");
        const std::size_t size = struct_size(function, totals, "totals");
        explain(plan->answer.explanation.c_str());
        write_struct(totals, to_totals(plan->answer), size);
    });
}
