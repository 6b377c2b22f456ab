// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "planner/input/rules.h"
#include "vescomm/planner_advice.hpp"

namespace vescomm::planner {

// The command line of vescomm-plan, checked as far as possible without the tensors.
struct PlanOptions {
    // Exactly one of the next three is set.
    std::string model;
    std::string safetensors;
    std::string tensors;

    Rules rules;
    int ranks = 0;
    Mode mode = Mode::ragged;
    std::int64_t align_start = 128;  // bytes
    std::int64_t align_cut = 128;
    std::vector<std::int64_t> weights;
    std::int64_t search_steps = 20'000'000;
    bool compare = false;
    bool advise = false;
    AdviceOptions advice;
    std::string json;  // file name; "-": standard output, and no text
    bool cuts = true;  // include the cuts in the JSON
    std::string picture;  // file name

    std::string title() const;  // name of the model, for printing
};

// Text to print instead of planning.
struct PlanAnswer {
    int exit_code;
    std::string text;
};

std::variant<PlanOptions, PlanAnswer> read_plan_options(int argc, const char *const *argv);

std::string_view name_of(Mode mode);

}  // namespace vescomm::planner
