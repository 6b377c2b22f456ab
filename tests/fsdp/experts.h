// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A small mixture of experts, and a trainer for it. Gradients are whole numbers, so that sums are
// exact: masters and norms have the same bits for any number of ranks and any expert_ranks.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {

constexpr std::int64_t expert_count = 60;

struct MixtureModel {
    Spec spec;
    int expert_ranks;
    std::vector<std::vector<std::uint64_t>> ids;  // by unit
    std::vector<bool> experts;  // by parameter
    std::vector<bool> frozen;  // by parameter
};

inline vescomm_fsdp_spec_options_t mixture_options(int expert_ranks) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.expert_ranks = expert_ranks;
    return options;
}

// Odd sizes in dense units and in units of experts: blocks of rows, blocks of elements, whole
// matrices, one element for each expert, no elements, frozen and tied parameters. `flags`: of some
// dense parameters.
inline MixtureModel mixture(const std::string &preset,
                            const vescomm_fsdp_spec_options_t &options = {},
                            std::uint32_t flags = 0) {
    vescomm_fsdp_spec_options_t chosen = options;
    chosen.struct_size = sizeof chosen;
    MixtureModel model{Spec(chosen), std::max(chosen.expert_ranks, 1), {}, {}, {}};
    model.spec.preset(preset);
    const auto add = [&](const std::string &unit, const std::vector<ParameterSpec> &parameters,
                         std::uint32_t of_unit) {
        const std::uint64_t number = model.spec.add_unit(unit, of_unit);
        model.ids.emplace_back();
        for (const ParameterSpec &parameter : parameters) {
            model.ids.back().push_back(model.spec.add_parameter(number, parameter));
            model.experts.push_back(of_unit == VESCOMM_FSDP_EXPERTS);
            model.frozen.push_back(parameter.flags == VESCOMM_FSDP_FROZEN);
        }
    };
    add("embedding", {{.name = "token", .shape = {37, 12}}}, 0);
    for (int layer = 0; layer < 3; ++layer) {
        const std::string suffix = "." + std::to_string(layer);
        add("attention" + suffix,
            {{.name = "query", .shape = {24, 12}, .block_rows = 8},
             {.name = "scale", .shape = {}, .flags = flags},
             {.name = "router", .shape = {expert_count, 3}, .flags = flags}},
            0);
        add("experts" + suffix,
            {{.name = "up", .shape = {expert_count, 3, 2}, .block_rows = 2},
             {.name = "bias", .shape = {expert_count}},
             {.name = "whole", .shape = {expert_count, 2, 2}, .block_rows = -1},
             {.name = "table", .shape = {expert_count, 7}, .block_elements = 3},
             {.name = "fixed", .shape = {expert_count, 2}, .flags = VESCOMM_FSDP_FROZEN},
             {.name = "nothing", .shape = {expert_count, 0, 3}}},
            VESCOMM_FSDP_EXPERTS);
    }
    const auto first_up = static_cast<std::int64_t>(model.ids[2].front());
    add("shared", {{.name = "up", .shape = {expert_count, 3, 2}, .tied_to = first_up}},
        VESCOMM_FSDP_EXPERTS);
    add("head", {{.name = "out", .shape = {19, 12}, .block_rows = 4}}, 0);
    return model;
}

// The element of the whole parameter that is the first one of this rank.
inline std::int64_t first_element(const MixtureModel &model, int rank, std::uint64_t id,
                                  const vescomm_fsdp_view_t &view) {
    return model.experts[id] ? rank % model.expert_ranks * view.elements : 0;
}

// Writes this rank's term of the gradients of a unit. The terms of the ranks that hold an element
// add up to total_gradient().
inline void write_gradients(Engine &engine, const MixtureModel &model, const Communicator &comm,
                            std::uint64_t unit, int step, int micro, int micro_batches) {
    for (const std::uint64_t id : model.ids[unit]) {
        if (model.frozen[id]) continue;
        const int divided = model.experts[id] ? model.expert_ranks : 1;
        const int part = comm.rank() / divided * micro_batches + micro;
        const int parts = comm.ranks() / divided * micro_batches;
        const auto [view, mode] = engine.gradient(id);
        const std::int64_t first = first_element(model, comm.rank(), id, view);
        for (std::int64_t i = 0; i < view.elements; ++i) {
            const auto term =
                static_cast<float>(gradient_term(total_gradient(id, first + i, step), part, parts));
            write(view, i, mode == VESCOMM_FSDP_ADD ? read(view, i) + term : term);
        }
    }
}

// Takes one step, and returns the norm.
inline double take_step(Engine &engine, const MixtureModel &model, const Communicator &comm,
                        int step, int micro_batches = 1, bool recompute = false) {
    for (int micro = 0; micro < micro_batches; ++micro) {
        engine.begin(micro + 1 == micro_batches ? VESCOMM_FSDP_LAST : 0);
        for (std::uint64_t unit = 0; unit < model.ids.size(); ++unit) {
            engine.pre_forward(unit);
            engine.post_forward(unit);
        }
        for (std::uint64_t unit = model.ids.size(); unit-- > 0;) {
            engine.pre_backward(unit);
            if (recompute) engine.pre_forward(unit);
            write_gradients(engine, model, comm, unit, step, micro, micro_batches);
            if (recompute) engine.post_forward(unit);
            engine.post_backward(unit);
        }
        engine.finish_backward();
    }
    vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
    arguments.max_norm = 30;
    return engine.step(arguments).norm;
}

// Opens all units for evaluation, and returns the parameters of this rank by id.
inline std::vector<std::vector<float>> read_views(Engine &engine, const MixtureModel &model) {
    std::vector<std::vector<float>> seen(model.experts.size());
    engine.begin(VESCOMM_FSDP_EVAL);
    for (std::uint64_t unit = 0; unit < model.ids.size(); ++unit) {
        engine.pre_forward(unit);
        for (const std::uint64_t id : model.ids[unit]) {
            const vescomm_fsdp_view_t view = engine.parameter(id);
            for (std::int64_t i = 0; i < view.elements; ++i) seen[id].push_back(read(view, i));
        }
        engine.post_forward(unit);
    }
    return seen;
}

// The part of whole parameters that a rank sees.
inline std::vector<std::vector<float>> part_of(const std::vector<std::vector<float>> &whole,
                                               const MixtureModel &model, int rank) {
    std::vector<std::vector<float>> part = whole;
    for (std::size_t id = 0; id < whole.size(); ++id) {
        if (!model.experts[id]) continue;
        const auto count =
            static_cast<std::ptrdiff_t>(whole[id].size()) / std::max(model.expert_ranks, 1);
        const auto begin = whole[id].begin() + rank % model.expert_ranks * count;
        part[id].assign(begin, begin + count);
    }
    return part;
}

// Returns the sentence of the error of a call.
inline std::string error_of(const std::function<void()> &call) {
    try {
        call();
    } catch (const Error &error) {
        return error.what();
    }
    return "no error";
}

}  // namespace vescomm::fsdp::testing
