// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// How many ranks should share one copy of a model? All of them (fully sharded) need the least
// memory and wait for the network most; fewer, with the copies kept alike by reducing gradients
// between them (hybrid sharding), are faster as long as a copy fits. This lists the choices.
//
//     vescomm::planner::Advice advice = vescomm::planner::advise(model, {.memory_bytes = 80e9});
//     if (advice.recommended) use(advice.choices[*advice.recommended].group);
//
// Numbers only, like the planner: the same question gives the same answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vescomm/planner_model.hpp"

namespace vescomm::planner {

// What training is assumed to hold and move. Defaults: AdamW with f32 masters, as vescomm-fsdp has
// it; activations are not counted, so leave room for them in memory_bytes.
struct AdviceOptions {
    int ranks_per_node = 8;
    double memory_bytes = 0;  // that a rank has for all of the below; 0: no limit

    // Bytes for each element that a rank owns.
    double master_bytes = 4;
    double state_bytes = 8;  // two moments of 4
    double gradient_shard_bytes = 4;
    // Whole units that are there at once, and bytes for each of their elements; 0: the unit's type.
    int parameter_slots = 2;
    int gradient_slots = 2;
    double gathered_bytes = 0;
    double gradient_bytes = 0;

    // Received by a rank, inside a node and between nodes, to estimate the time of a step by.
    double node_bytes_per_second = 300e9;
    double network_bytes_per_second = 50e9;
};

// `group` ranks share one copy of the model, and there are `replicas` copies.
struct Choice {
    int group = 1;
    int replicas = 1;
    bool feasible = false;  // there is a layout
    bool fits = false;  // into memory_bytes
    double memory_bytes = 0;  // of the rank that needs most
    double shard_bytes = 0;  // of these: masters, states and gradient shard
    double slot_bytes = 0;  // of these: gathered units and their gradients
    double wire_bytes_inside = 0;  // a step: two gathers and a reduction within the group
    double wire_bytes_between = 0;  // a step: gradients made the same in all replicas
    double padding_ratio = 0;  // padding over elements of tensors
    double largest_over_mean = 1;  // what the fullest rank owns
    double seconds = 0;  // that a step spends on the wire if nothing overlaps
    std::string note;  // what is wrong with it, and what to change; empty if nothing
};

struct Advice {
    std::vector<Choice> choices;  // smallest group first
    std::optional<std::size_t> recommended;  // index; none when nothing fits
    std::string reason;  // a sentence
};

// model.ranks is the number of all ranks; groups are its divisors that divide a node or consist of
// whole nodes. The two bytes per second above stand in for Options::costs. Weights are not
// supported here. Cost: that of plan() for each choice. Throws std::invalid_argument.
VESCOMM_API Advice advise(const Model &model, const AdviceOptions &advice = {},
                          const Options &options = {});

}  // namespace vescomm::planner
