// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// From a list of tensors to a model: which go into one buffer, and what must stay together.
#pragma once

#include <cstdint>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "planner/input/input.h"
#include "vescomm/planner_model.hpp"

namespace vescomm::planner {

// A rule holds for names in which the expression is found somewhere; ^ and $ tie it to the ends.
struct BlockRule {
    std::string text;  // as given
    std::regex names;
    std::int64_t rows = 1;  // -1: the whole tensor
};

struct UnitRule {
    std::string text;
    std::regex names;  // what the first group captures names the unit; without groups, the match
};

struct Rules {
    // Of tensors with two dimensions or more; vectors may be cut anywhere.
    std::int64_t block_rows = 1;
    std::vector<BlockRule> blocks = {};  // the last one that matches counts
    std::vector<UnitRule> units = {};  // the first one
};

BlockRule parse_block_rule(const std::string &text);  // "experts=128", "\\.mlp\\.=tensor"
UnitRule parse_unit_rule(const std::string &text);

// Units that nobody names: one for each layer ("layers.<n>.", "h.<n>." or "blocks.<n>.", whatever
// is before it), one for the embedding, and one for the rest.
std::string default_unit(std::string_view name);

// One unit for each name and element type, in order of appearance. Types are not mixed, because
// one collective adds up elements of one type, and one cast makes one buffer out of another: the
// f32 bias of a router would otherwise make all of its layer f32 on the wire.
//
// Of tensors with three dimensions or more in whose name is "expert" or "moe", and no number behind
// it, the first dimension counts experts, whose blocks start anew, unless the input says otherwise
// (InputTensor::batch_dimensions); a first dimension of 1 counts nothing. Of all others, such as
// weights of convolutions, it counts rows. Stacked biases ("...bias", two dimensions) are vectors.
// The result has one rank; the caller says how many there are. Throws InputError; rules that no
// name matches are refused, since they are typing mistakes.
Model make_model(const std::vector<InputTensor> &tensors, const Rules &rules);

}  // namespace vescomm::planner
