// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Advice on the number of ranks that share one copy of a model (a shard group). Sharing among all
// ranks (fully sharded) needs the least memory and the most network time. Sharing among fewer
// ranks, with gradients reduced between the copies (hybrid sharding), is faster as long as a copy
// fits. advise() lists the choices.
//
//     vescomm::planner::Advice advice = vescomm::planner::advise(model, {.memory_bytes = 80e9});
//     if (advice.recommended) use(advice.choices[*advice.recommended].group);
//
// Like the planner, this only computes: the same input gives the same answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vescomm/planner_model.hpp"

namespace vescomm::planner {

// Assumptions about the memory and traffic of training. The defaults are AdamW with f32 masters, as
// in vescomm-fsdp. Activations are not counted, so leave space for them in memory_bytes.
struct AdviceOptions {
    int ranks_per_node = 8;
    double memory_bytes = 0;  // available on a rank for everything below; 0: no limit

    // Bytes for each element that a rank owns.
    double master_bytes = 4;
    double state_bytes = 8;  // two moments of 4
    double gradient_shard_bytes = 4;
    // Number of unit slots and of gradient slots, and bytes of an element in each; 0: those of the
    // unit's type.
    int parameter_slots = 2;
    int gradient_slots = 2;
    double gathered_bytes = 0;
    double gradient_bytes = 0;

    // Received by a rank, inside a node and between nodes; used to estimate the time of a step.
    double node_bytes_per_second = 300e9;
    double network_bytes_per_second = 50e9;
};

// `group` ranks share one copy of the model, and there are `replicas` copies.
struct Choice {
    int group = 1;
    int replicas = 1;
    bool feasible = false;  // a layout exists
    bool fits = false;  // into AdviceOptions::memory_bytes
    double memory_bytes = 0;  // of the rank that needs most: shard_bytes + slot_bytes
    double shard_bytes = 0;  // masters, states and gradient shard
    double slot_bytes = 0;  // gathered units and their gradients
    double wire_bytes_inside = 0;  // per step: two gathers and a reduction within the group
    double wire_bytes_between = 0;  // per step: gradients reduced between replicas
    double padding_ratio = 0;  // padding over elements of tensors
    double largest_over_mean = 1;  // elements of the fullest rank over the mean
    double seconds = 0;  // communication time of a step without overlap
    std::string note;  // a problem of this choice and a remedy; empty if there is none
};

struct Advice {
    std::vector<Choice> choices;  // smallest group first
    std::optional<std::size_t> recommended;  // index into `choices`; none when nothing fits
    std::string reason;  // of the recommendation, one sentence
};

// Examines all group sizes. model.ranks is the number of all ranks; group sizes are its divisors
// that divide a node or consist of whole nodes. The two bandwidths of AdviceOptions replace
// Options::costs. Weights are not supported. Throws std::invalid_argument.
// Cost: that of plan() for each choice.
VESCOMM_API Advice advise(const Model &model, const AdviceOptions &advice = {},
                          const Options &options = {});

}  // namespace vescomm::planner
