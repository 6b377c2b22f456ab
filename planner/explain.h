// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planner/problem.h"
#include "planner/weights.h"

namespace vescomm::planner {

// The sentences of an answer.

// Describes the padding, as part of a sentence.
std::string describe_padding(const Answer &answer);

// Answer::explanation of a buffer that is planned on its own.
std::string explain(const Problem &problem, const Items &items, const Options &options,
                    const Answer &answer);

// Names the cause of a large shard and a remedy; empty if there is no remedy.
std::string advice(const Problem &problem, const Items &items);

// The explanation of an answer without a layout: `what` needs shards of `shard` elements.
std::string too_large(const Problem &problem, const Items &items, const Options &options,
                      std::int64_t shard, const char *what);

}  // namespace vescomm::planner
