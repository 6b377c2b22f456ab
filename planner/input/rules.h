// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Rules that turn a list of tensors into a model: which tensors share a buffer, and their blocks.
#pragma once

#include <cstdint>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "planner/input/input.h"
#include "vescomm/planner_model.hpp"

namespace vescomm::planner {

// A rule applies to names in which the expression is found anywhere; ^ and $ anchor it.
struct BlockRule {
    std::string text;  // as given
    std::regex names;
    std::int64_t rows = 1;  // -1: the whole tensor
};

struct UnitRule {
    std::string text;  // as given
    std::regex names;  // the first group, or without groups the match, is the name of the unit
};

struct Rules {
    // For tensors with two dimensions or more; vectors may be cut anywhere.
    std::int64_t block_rows = 1;
    std::vector<BlockRule> blocks = {};  // the last rule that matches applies
    std::vector<UnitRule> units = {};  // the first rule that matches applies
};

BlockRule parse_block_rule(const std::string &text);  // "experts=128", "\\.mlp\\.=tensor"
UnitRule parse_unit_rule(const std::string &text);

// Returns the unit of a tensor that no rule matches: one for each layer ("layers.<n>.", "h.<n>." or
// "blocks.<n>.", with any prefix), one for the embedding, and one for the rest.
std::string default_unit(std::string_view name);

// Makes one unit for each name and element type, in order of appearance. Types are not mixed,
// because a collective reduces elements of one type and a cast converts a whole buffer: the f32
// bias of a router would otherwise be transferred with its whole layer in f32.
//
// A tensor with three dimensions or more holds stacked experts if its name contains "expert" or
// "moe" with no number after it: its first dimension counts experts, and blocks restart in each.
// InputTensor::batch_dimensions overrides this. A first dimension of 1 is a batch dimension. In all
// other tensors, such as weights of convolutions, the first dimension counts rows. Stacked biases
// ("...bias", two dimensions) are vectors.
//
// The result has one rank; the caller sets the number of ranks. Throws InputError, also for a rule
// that matches no name, because that is a typing mistake.
Model make_model(const std::vector<InputTensor> &tensors, const Rules &rules);

}  // namespace vescomm::planner
