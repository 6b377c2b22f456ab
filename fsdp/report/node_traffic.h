// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Bytes that cross between nodes in a step, computed from the plan. Pure.
#pragma once

#include <cstdint>

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// Returns the bytes of parameters and gradients that all nodes together receive from other nodes in
// a step, if each node receives a shard once, and sends one partial sum. Each `node_ranks`
// consecutive ranks are a node.
std::uint64_t node_bytes_per_step(const Spec &spec, const ModelPlan &plan, int node_ranks,
                                  int micro_batches);

}  // namespace vescomm::fsdp
