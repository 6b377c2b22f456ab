// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner for whole models. It plans all fused buffers at once, so that the bytes of a rank in
// all buffers together are even.
//
//     vescomm::planner::Model model{{{"layers.0", VESCOMM_BF16, tensors}, ...}, 1024};
//     vescomm::planner::ModelAnswer answer = vescomm::planner::plan(model, options);
//     auto layout = vescomm::planner::make_layout(model, answer, 0);   // of the first unit
//
// planner.hpp plans one buffer; it defines the options and the answer for one buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "vescomm/planner.hpp"

namespace vescomm::planner {

// The tensors of one unit (usually a layer) that have one type, which share a fused buffer. A unit
// with several types is represented by several of these with the same name.
struct Unit {
    std::string name;
    vescomm_type_t type = VESCOMM_BF16;
    std::vector<Tensor> tensors;
};

struct Model {
    std::vector<Unit> units;
    int ranks = 1;
    // A rank with twice the weight of another takes twice the bytes. Empty: all weights are equal.
    std::vector<std::int64_t> weights = {};
};

struct ModelAnswer {
    // False: some unit has no layout; `explanation` names the unit and the reason.
    bool feasible = false;
    std::string explanation;  // one sentence

    Mode mode = Mode::ragged;  // of all units; never automatic
    // One answer for each unit, in the order of the model. Units with the same tensors share an
    // answer, which saves memory of layers times ranks.
    std::vector<std::shared_ptr<const Answer>> units;

    std::int64_t bytes = 0;  // of all buffers, padding included
    std::int64_t padding_bytes = 0;
    std::int64_t largest_rank_bytes = 0;  // the most that one rank owns of all units together
    double mean_rank_bytes = 0;  // without padding
    std::int64_t lower_bound_bytes = 0;  // for any cuts, some rank owns at least this
    // The largest ratio of a rank's bytes to its share. The share is the mean, or with weights the
    // part that the rank's weight gives it.
    double largest_over_share = 1;
    // Mode::owner: work of the busiest rank over the mean.
    double largest_rank_cost_over_mean = 0;
    double lower_bound_cost_over_mean = 0;  // no assignment of whole matrices has less
    // Estimates for one training step, in which every unit is gathered twice and reduced once.
    // Every step of a ring takes as long as the largest shard needs.
    double wire_bytes_per_step = 0;  // received by a rank: largest shard * (ranks - 1) for each
    double seconds_per_step = 0;  // by Options::costs
};

// Plans all units of a model. Throws std::invalid_argument with a sentence that names the unit, the
// tensor or the option.
// Cost: O(tensors + ranks * units that differ) memory (owner: ranks * units); under 50 ms for the
// 45,395 tensors of DeepSeek-V3 at 100,000 ranks, without search_steps.
VESCOMM_API ModelAnswer plan(const Model &model, const Options &options = {});

// Makes the layout of one unit of a feasible answer to `model`. Throws LayoutError.
VESCOMM_API LayoutPointer make_layout(const Model &model, const ModelAnswer &answer,
                                      std::size_t unit);

}  // namespace vescomm::planner
