// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Text written by the model.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fsdp/examples/train_gpt/options.h"
#include "vescomm/fsdp.hpp"

namespace train_gpt {

// Returns a byte drawn from softmax(scores / temperature), with chance in [0, 1).
int draw(std::span<const float> scores, double temperature, double chance);

// Generates options.sample bytes after the prompt. Rank 0 gets the text, other ranks "". No rank
// holds all parameters, so all ranks gather every unit for every byte; only rank 0 computes.
// Collective.
std::string write_sample(vescomm::fsdp::Engine &engine, int rank, const Options &options);

}  // namespace train_gpt
