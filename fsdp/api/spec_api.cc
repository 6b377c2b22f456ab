// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The exported functions of specifications and reports.
#include <algorithm>
#include <cstddef>

#include "fsdp/api/guard.h"
#include "fsdp/api/handles.h"
#include "fsdp/report/recommend.h"
#include "fsdp/report/traffic.h"
#include "fsdp/spec/model_plan.h"

namespace api = vescomm::fsdp;

vescomm_status_t vescomm_fsdp_spec_create(const vescomm_fsdp_spec_options_t *options,
                                          vescomm_fsdp_spec_t **spec) {
    return api::guarded("vescomm_fsdp_spec_create", [&] {
        api::require(spec, "spec");
        auto ours = vescomm_fsdp_spec_options_init();
        if (options != nullptr) ours = api::read_struct(options, "options", ours);
        auto planner = vescomm_planner_options_init();
        if (ours.planner != nullptr) {
            planner = api::read_struct(ours.planner, "planner", planner);
            planner.struct_size = sizeof planner;
            ours.planner = &planner;
        }
        auto allocator = vescomm_fsdp_allocator_init();
        if (ours.allocator != nullptr) {
            allocator = api::read_struct(ours.allocator, "allocator", allocator);
            ours.allocator = &allocator;
        }
        *spec = new vescomm_fsdp_spec{api::Spec(ours)};
    });
}

vescomm_status_t vescomm_fsdp_spec_free(vescomm_fsdp_spec_t *spec) {
    delete spec;
    return VESCOMM_OK;
}

vescomm_status_t vescomm_fsdp_add_axis(vescomm_fsdp_spec_t *spec, const char *name, int32_t size,
                                       vescomm_fsdp_placement_t parameters,
                                       vescomm_fsdp_placement_t gradients,
                                       vescomm_fsdp_placement_t optimizer) {
    return api::guarded("vescomm_fsdp_add_axis", [&] {
        api::require(spec, "spec");
        api::require(name, "name");
        spec->spec.add_axis({name, size, parameters, gradients, optimizer});
    });
}

vescomm_status_t vescomm_fsdp_preset(vescomm_fsdp_spec_t *spec, const char *preset) {
    return api::guarded("vescomm_fsdp_preset", [&] {
        api::require(spec, "spec");
        api::require(preset, "preset");
        spec->spec.use_preset(preset);
    });
}

vescomm_status_t vescomm_fsdp_add_unit(vescomm_fsdp_spec_t *spec, const char *name, uint32_t flags,
                                       uint64_t *unit) {
    return api::guarded("vescomm_fsdp_add_unit", [&] {
        api::require(spec, "spec");
        api::require(name, "name");
        api::require(unit, "unit");
        *unit = spec->spec.add_unit(name, flags);
    });
}

vescomm_status_t vescomm_fsdp_add_parameter(vescomm_fsdp_spec_t *spec, uint64_t unit,
                                            const vescomm_fsdp_parameter_t *parameter,
                                            uint64_t *id) {
    return api::guarded("vescomm_fsdp_add_parameter", [&] {
        api::require(spec, "spec");
        api::require(id, "id");
        const auto ours = api::read_struct(parameter, "parameter", vescomm_fsdp_parameter_init());
        constexpr std::size_t end_of_name = offsetof(vescomm_fsdp_parameter_t, shape);
        if (ours.struct_size < end_of_name)
            api::refuse(
                "struct_size of parameter is {}, and its name ends at byte {}; initialise the "
                "struct with vescomm_fsdp_parameter_init(), which sets it",
                ours.struct_size, end_of_name);
        *id = spec->spec.add_parameter(unit, ours);
    });
}

vescomm_status_t vescomm_fsdp_add_group(vescomm_fsdp_spec_t *spec, const uint64_t *parameters,
                                        size_t count, const vescomm_optimizer_kind_t *kind,
                                        const void *settings, uint64_t *group) {
    return api::guarded("vescomm_fsdp_add_group", [&] {
        api::require(spec, "spec");
        if (count > 0) api::require(parameters, "parameters");
        const auto ours = api::read_struct(kind, "kind", vescomm_optimizer_kind_init());
        const std::size_t made = spec->spec.add_group({parameters, count}, ours, settings);
        if (group != nullptr) *group = made;
    });
}

vescomm_status_t vescomm_fsdp_report(const vescomm_fsdp_spec_t *spec, int32_t ranks,
                                     vescomm_fsdp_report_t *report) {
    return api::guarded("vescomm_fsdp_report", [&] {
        api::require(spec, "spec");
        const auto asked = api::read_struct(report, "report", vescomm_fsdp_report_init());
        api::Spec complete = spec->spec;
        complete.complete();
        const api::ModelPlan plan = api::plan_model(complete, ranks);
        api::write_struct(report, api::make_report(complete, plan, asked), "report");
    });
}

vescomm_status_t vescomm_fsdp_recommend(const vescomm_fsdp_spec_t *spec, int32_t ranks,
                                        int32_t node_ranks, uint64_t memory_bytes,
                                        vescomm_fsdp_recommendation_t *recommendation,
                                        vescomm_fsdp_report_t *report) {
    return api::guarded("vescomm_fsdp_recommend", [&] {
        api::require(spec, "spec");
        auto result =
            api::read_struct(recommendation, "recommendation", vescomm_fsdp_recommendation_init());
        auto asked = vescomm_fsdp_report_init();
        if (report != nullptr) asked = api::read_struct(report, "report", asked);
        asked.node_ranks = node_ranks;
        asked.nodes = nullptr;
        asked.comm = nullptr;
        api::Spec complete = spec->spec;
        complete.complete();
        const auto all = api::candidates(complete, {ranks, node_ranks}, asked.micro_batches);
        const api::Candidate &best = api::recommend(all, memory_bytes);
        result.candidates = static_cast<std::int32_t>(all.size());
        result.fitting = static_cast<std::int32_t>(std::ranges::count_if(
            all, [&](const api::Candidate &one) { return one.needed_bytes() <= memory_bytes; }));
        best.preset.copy(result.preset, sizeof result.preset - 1);
        result.node_bytes_per_step = best.node_bytes;
        result.wire_bytes_per_step = best.wire_bytes;
        result.peak_bytes = best.report.peak_bytes;
        if (report != nullptr) {
            complete.use_preset(best.preset);
            const api::ModelPlan plan = api::plan_model(complete, ranks);
            api::write_struct(report, api::make_report(complete, plan, asked), "report");
        }
        api::write_struct(recommendation, result, "recommendation");
    });
}
