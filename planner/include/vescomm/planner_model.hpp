// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner for whole models: all fused buffers at once, so that what a rank holds of them
// together is even.
//
//     vescomm::planner::Model model{{{"layers.0", VESCOMM_BF16, tensors}, ...}, 1024};
//     vescomm::planner::ModelAnswer answer = vescomm::planner::plan(model, options);
//     auto layout = vescomm::planner::make_layout(model, answer, 0);   // of the first unit
//
// planner.hpp plans one buffer; it has the options, and the answer for each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "vescomm/planner.hpp"

namespace vescomm::planner {

// One fused buffer: tensors of one type that are gathered together. A unit of a model that mixes
// types is several of these under one name.
struct Unit {
    std::string name;
    vescomm_type_t type = VESCOMM_BF16;
    std::vector<Tensor> tensors;
};

struct Model {
    std::vector<Unit> units;
    int ranks = 1;
    // A rank with twice the weight of another takes twice the bytes. Empty: all the same.
    std::vector<std::int64_t> weights = {};
};

struct ModelAnswer {
    // False: there is no layout for some unit, and `explanation` says for which, and why.
    bool feasible = false;
    std::string explanation;  // one sentence

    Mode mode = Mode::ragged;  // of all units; never automatic
    // As in the model. Units of the same tensors share an answer, so that the layers of a model do
    // not cost their number times the ranks.
    std::vector<std::shared_ptr<const Answer>> units;

    // Bytes, padding included, of the types that the units have.
    std::int64_t bytes = 0;  // of all buffers
    std::int64_t padding_bytes = 0;
    std::int64_t largest_rank_bytes = 0;  // the most that one rank owns of all units together
    double mean_rank_bytes = 0;  // without padding
    std::int64_t lower_bound_bytes = 0;  // no choice of cuts has a smaller largest rank
    // What a rank owns over what it should have: of the mean, or by Model::weights. The largest.
    double largest_over_share = 1;
    // Mode::owner: the cost of the rank that has most to do, over the mean.
    double largest_rank_cost_over_mean = 0;
    double lower_bound_cost_over_mean = 0;  // no assignment of whole matrices has less
    // One training step: every unit gathered twice and reduced once, in rings whose every round
    // lasts as long as the largest shard needs.
    double wire_bytes_per_step = 0;  // largest shard * (ranks - 1), of each
    double seconds_per_step = 0;  // by Options::costs
};

// Cost: O(tensors + ranks * units that differ) memory (owner: ranks * units); under 50 ms for the
// 45,395 tensors of DeepSeek-V3 at 100,000 ranks, without search_steps. Throws
// std::invalid_argument with a sentence that names the unit, the tensor or the option.
VESCOMM_API ModelAnswer plan(const Model &model, const Options &options = {});

// The layout of one unit of a feasible answer to that model. Throws LayoutError.
VESCOMM_API LayoutPointer make_layout(const Model &model, const ModelAnswer &answer,
                                      std::size_t unit);

}  // namespace vescomm::planner
