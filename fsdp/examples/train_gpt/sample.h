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

// The index of a byte drawn from softmax(scores / temperature), with chance in [0, 1).
int draw(std::span<const float> scores, double temperature, double chance);

// Writes options.sample bytes after the prompt; rank 0 gets them, the others "". Parameters are
// whole nowhere, so that all ranks gather every unit for every byte, but only rank 0 computes.
// Collective.
std::string write_sample(vescomm::fsdp::Engine &engine, int rank, const Options &options);

}  // namespace train_gpt
