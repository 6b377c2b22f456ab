// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "integer.h"
#include "layout.h"
#include "vescomm/planner.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

void check_plan(vescomm_status_t status) {
    if (status < 0) raise(status, vescomm_plan_explain());
}

// Tensors of Python, objects with the members of vescomm.PlannerTensor, as the planner reads them.
class Tensors {
public:
    // `list`: where they are, for sentences.
    Tensors(const nb::sequence &tensors, std::string_view list) {
        for (const nb::handle each : tensors) {
            const auto place = [list, index = plain_.size()](const char *member) {
                return Place{list, index, member};
            };
            const auto member = [&](const char *name) { return member_of(each, place(name)); };
            names_.push_back(read_text(member("name"), place("name")));
            shapes_.push_back(read_integers(member("shape"), place("shape")));
            vescomm_planner_tensor_t tensor = vescomm_planner_tensor_init();
            tensor.name = names_.back().c_str();
            tensor.dimensions = static_cast<std::int32_t>(shapes_.back().values.size());
            tensor.shape = shapes_.back().values.data();
            tensor.block_rows = read_integer(member("block_rows"), place("block_rows"));
            tensor.batch_dimensions =
                read_small(member("batch_dimensions"), place("batch_dimensions"));
            tensor.alignment = read_integer(member("alignment"), place("alignment"));
            plain_.push_back(tensor);
        }
    }
    const std::vector<vescomm_planner_tensor_t> &plain() const noexcept { return plain_; }

private:
    // Elements of a deque keep their addresses.
    std::deque<std::string> names_;
    std::deque<Integers> shapes_;
    std::vector<vescomm_planner_tensor_t> plain_;
};

// Options of the planner, from a dictionary of its members.
class Options {
public:
    explicit Options(const nb::dict &given) {
        value_.mode = member(given, "mode", "vescomm.Mode", "vescomm.Mode, such as Mode.OWNER");
        value_.start_alignment = integer(given, "start_alignment");
        value_.cut_alignment = integer(given, "cut_alignment");
        value_.shard_limit = integer(given, "shard_limit");
        value_.search_steps = integer(given, "search_steps");
        value_.work = member(given, "work", "vescomm.Work", "vescomm.Work, such as Work.MUON");
        value_.unit_imbalance = number(given, "unit_imbalance");
        value_.bytes_per_second = number(given, "bytes_per_second");
        value_.seconds_per_collective = number(given, "seconds_per_collective");
        value_.seconds_per_unequal = number(given, "seconds_per_unequal");
    }
    // `weights` must live as long.
    void set_weights(const std::optional<Integers> &weights, std::int64_t ranks) {
        if (!weights) return;
        if (weights->values.size() != static_cast<std::size_t>(ranks))
            refuse("weights has " + std::to_string(weights->values.size()) +
                   " numbers; give one for each of the " + std::to_string(ranks) + " ranks");
        value_.weights = weights->values.data();
    }
    const vescomm_planner_options_t *get() const noexcept { return &value_; }

private:
    static std::int32_t member(const nb::dict &given, const char *name, const char *type,
                               const char *members) {
        refuse_other_members(given[name], name, type, members);
        return read_small(given[name], {{}, 0, name});
    }
    static std::int64_t integer(const nb::dict &given, const char *name) {
        return read_integer(given[name], {{}, 0, name});
    }
    static double number(const nb::dict &given, const char *name) {
        return read_number(given[name], {{}, 0, name});
    }

    vescomm_planner_options_t value_ = vescomm_planner_options_init();
};

nb::dict to_dict(const vescomm_planner_figures_t &figures) {
    nb::dict all;
    all["optimal"] = figures.optimal != 0;
    all["elements"] = figures.elements;
    all["padding"] = figures.padding;
    all["largest_shard"] = figures.largest_shard;
    all["lower_bound"] = figures.lower_bound;
    all["mean_shard"] = figures.mean_shard;
    all["order"] = figures.order == nullptr ? "" : figures.order;
    all["largest_over_share"] = figures.largest_over_share;
    all["lower_bound_over_share"] = figures.lower_bound_over_share;
    all["steps"] = figures.steps;
    return all;
}

nb::dict to_dict(const vescomm_planner_totals_t &totals) {
    nb::dict all;
    all["feasible"] = totals.feasible != 0;
    all["mode"] = totals.mode;
    all["bytes"] = totals.bytes;
    all["padding_bytes"] = totals.padding_bytes;
    all["largest_rank_bytes"] = totals.largest_rank_bytes;
    all["lower_bound_bytes"] = totals.lower_bound_bytes;
    all["mean_rank_bytes"] = totals.mean_rank_bytes;
    all["largest_over_share"] = totals.largest_over_share;
    all["largest_rank_cost_over_mean"] = totals.largest_rank_cost_over_mean;
    all["lower_bound_cost_over_mean"] = totals.lower_bound_cost_over_mean;
    all["wire_bytes_per_step"] = totals.wire_bytes_per_step;
    all["seconds_per_step"] = totals.seconds_per_step;
    return all;
}

nb::object own(vescomm_layout_t *layout) {
    return layout == nullptr ? nb::none() : nb::cast(Layout(layout));
}

// Returns (layout or None, figures, explanation).
nb::tuple plan(const nb::sequence &given, nb::handle ranks, const nb::dict &given_options,
               const std::optional<Integers> &weights) {
    const Tensors tensors(given, "tensors");
    const std::int32_t small_ranks = read_small(ranks, {{}, 0, "ranks"});
    Options options(given_options);
    options.set_weights(weights, small_ranks);
    vescomm_layout_t *layout = nullptr;
    vescomm_planner_figures_t figures = vescomm_planner_figures_init();
    vescomm_status_t status = VESCOMM_OK;
    {
        const GilReleased released;
        status = vescomm_plan(tensors.plain().data(), tensors.plain().size(), small_ranks,
                              options.get(), &layout, &figures);
    }
    check_plan(status);
    const nb::str explanation = to_str(vescomm_plan_explain());
    return nb::make_tuple(own(layout), to_dict(figures), explanation);
}

// Units are tuples (name, type, tensors). Returns (totals, explanation, units), where a unit is a
// tuple (layout or None, figures, explanation).
nb::tuple plan_model(const nb::sequence &given, nb::handle ranks, const nb::dict &given_options,
                     const std::optional<Integers> &weights) {
    std::deque<Tensors> tensors;
    std::deque<std::string> names;
    std::vector<vescomm_planner_unit_t> units;
    for (const nb::handle each : given) {
        const std::size_t index = units.size();
        names.push_back(read_text(each[0], {"units", index, "name"}));
        const std::string list = "units[" + std::to_string(index) + "]: tensors";
        tensors.emplace_back(nb::borrow<nb::sequence>(nb::object(each[2])), list);
        vescomm_planner_unit_t unit = vescomm_planner_unit_init();
        unit.name = names.back().c_str();
        const Place type{"type", index};
        refuse_other_members(each[1], type.text(), ElementType::type, ElementType::members);
        unit.type = read_small(each[1], type);
        unit.tensors = tensors.back().plain().data();
        unit.count = tensors.back().plain().size();
        units.push_back(unit);
    }
    const std::int32_t small_ranks = read_small(ranks, {{}, 0, "ranks"});
    Options options(given_options);
    options.set_weights(weights, small_ranks);
    vescomm_plan_t *made = nullptr;
    vescomm_status_t status = VESCOMM_OK;
    {
        const GilReleased released;
        status = vescomm_plan_create(units.data(), units.size(), small_ranks, options.get(), &made);
    }
    check_plan(status);
    const std::unique_ptr<vescomm_plan_t, decltype(&vescomm_plan_free)> plan(made,
                                                                             vescomm_plan_free);
    vescomm_planner_totals_t totals = vescomm_planner_totals_init();
    check_plan(vescomm_plan_get_totals(made, &totals));
    const nb::str explanation = to_str(vescomm_plan_explain());
    nb::list layouts;
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
        vescomm_layout_t *layout = nullptr;
        check_plan(vescomm_plan_create_layout(made, unit, &layout));
        const nb::object owned = own(layout);
        vescomm_planner_figures_t figures = vescomm_planner_figures_init();
        check_plan(vescomm_plan_get_figures(made, unit, &figures));
        layouts.append(nb::make_tuple(owned, to_dict(figures), to_str(vescomm_plan_explain())));
    }
    return nb::make_tuple(to_dict(totals), explanation, layouts);
}

}  // namespace

void define_plan(nb::module_ &module) {
    module.def("plan", plan, nb::arg("tensors"), nb::arg("ranks"), nb::arg("options"),
               nb::arg("weights").none());
    module.def("plan_model", plan_model, nb::arg("units"), nb::arg("ranks"), nb::arg("options"),
               nb::arg("weights").none());
}

}  // namespace vescomm::python
