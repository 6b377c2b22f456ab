// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The results of vescomm-plan and their formats.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/tools/plan_options.h"
#include "vescomm/planner_advice.hpp"

namespace vescomm::planner {

// The tensors of the model laid out by one of the planner's modes or by another system.
struct Compared {
    std::string name;
    std::string explanation;  // why there is no layout; empty if there is one
    bool keeps_blocks = true;
    double padding_ratio = 0;  // over the bytes of tensors
    double fullest_over_mean = 0;  // bytes of the fullest rank in all buffers over the mean
    double wire_bytes_per_step = 0;
    double seconds = 0;  // of planning
};

struct Report {
    std::string title;  // of the model
    Model model;
    Options options;
    AdviceOptions assumed;
    ModelAnswer answer;
    double seconds = 0;  // of planning, without reading the input
    // The next two are set only if requested.
    std::optional<std::vector<Compared>> comparison = {};
    std::optional<Advice> advice = {};
};

std::vector<Compared> compare(const Report &report);

// Units with the same tensors, such as the layers of a model, in order of appearance.
struct Alike {
    std::vector<std::size_t> units;
    std::size_t fullest = 0;  // index of the unit with the largest shard
    std::string name;  // "model.layers.0..35"
};
std::vector<Alike> group_alike(const Report &report);

// Returns the bytes by which the largest shards of a group's buffers exceed the mean.
double excess_bytes(const Report &report, const Alike &alike);

// Return text for a terminal of 80 to 100 columns that ends with a newline.
std::string describe(const Report &report);
std::string describe_owners(const Report &report, const Alike &alike);
std::string describe(const Advice &advice, const AdviceOptions &assumed);
std::string describe(const std::vector<Compared> &comparison);

// Returns JSON in the format vescomm-plan/1; vescomm-plan-1.schema.json describes it.
std::string to_json(const Report &report, bool with_cuts);

// Draws a plan from its JSON, which must include the cuts. Throws std::runtime_error.
void draw(const std::string &json, const std::string &picture_path);

// Returns a tensor's name without the name of its unit, and with * for numbers that repeat:
// "mlp.experts.*.up_proj.weight".
std::string tensor_class(std::string_view name, std::string_view unit);

// Breaks lines at spaces; lines after the first begin with `indent` spaces.
std::string wrap(std::string_view text, std::size_t indent = 2);

// Replaces control characters by question marks: names come from files, and must not move a
// terminal's cursor.
std::string printable(std::string_view text);

std::string show_seconds(double seconds);

}  // namespace vescomm::planner
