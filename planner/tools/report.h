// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What vescomm-plan knows when it has planned, and how it writes that down.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/tools/plan_options.h"
#include "vescomm/planner_advice.hpp"

namespace vescomm::planner {

// The same tensors laid out by one of our modes, or by somebody else.
struct Compared {
    std::string name;
    std::string explanation;  // why there is no layout; empty: there is one
    bool keeps_blocks = true;
    double padding_ratio = 0;  // over the bytes of tensors
    double fullest_over_mean = 0;  // what the fullest rank holds of all buffers
    double wire_bytes_per_step = 0;
    double seconds = 0;  // that planning took
};

struct Report {
    std::string title;  // of the model
    Model model;
    Options options;
    AdviceOptions assumed;
    ModelAnswer answer;
    double seconds = 0;  // that planning took, without reading the input
    // Where they were asked for.
    std::optional<std::vector<Compared>> comparison = {};
    std::optional<Advice> advice = {};
};

std::vector<Compared> compare(const Report &report);

// Units with the same tensors, such as the layers of a model, in order of appearance.
struct Alike {
    std::vector<std::size_t> units;
    std::size_t fullest = 0;  // of them, the one with the largest shard
    std::string name;  // "model.layers.0..35"
};
std::vector<Alike> group_alike(const Report &report);

// How far the buffers of a group are from even shards, in bytes.
double excess_bytes(const Report &report, const Alike &alike);

// For a terminal of 80 to 100 columns; all end with a newline.
std::string describe(const Report &report);
std::string describe_owners(const Report &report, const Alike &alike);
std::string describe(const Advice &advice, const AdviceOptions &assumed);
std::string describe(const std::vector<Compared> &comparison);

// vescomm-plan/1, as vescomm-plan-1.schema.json describes it.
std::string to_json(const Report &report, bool with_cuts);

// Draws the JSON of a plan, which has its cuts. Throws std::runtime_error.
void draw(const std::string &json, const std::string &picture_path);

// "a name that repeats" without what is the same everywhere: "mlp.experts.*.up_proj.weight".
std::string tensor_class(std::string_view name, std::string_view unit);

// Breaks lines at spaces; lines after the first begin with `indent` spaces.
std::string wrap(std::string_view text, std::size_t indent = 2);

// Names come from files: what would move a terminal's cursor is a question mark.
std::string printable(std::string_view text);

std::string show_seconds(double seconds);

}  // namespace vescomm::planner
