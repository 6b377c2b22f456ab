// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Bytes of memory and on the wire of one rank, computed from the plan. The engine counts what it
// sends with the functions for one transfer, and the report multiplies them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// Shards begin at multiples of this many elements: 64 bytes of f32, a cache line.
constexpr std::int64_t shard_alignment = 16;

constexpr std::int64_t align_shard(std::int64_t elements) {
    return (elements + shard_alignment - 1) / shard_alignment * shard_alignment;
}

// Bytes of other ranks in one gather of a unit.
std::uint64_t gather_bytes(const ModelPlan &plan, std::size_t unit, int position);
// The same, of a gather within a group that has a secondary copy; 0 without copies.
std::uint64_t group_gather_bytes(const ModelPlan &plan, std::size_t unit, int position);
// Bytes of other ranks that fill the secondary copy of a unit; 0 without copies.
std::uint64_t fill_bytes(const ModelPlan &plan, std::size_t unit, int position);
// Bytes for other ranks in one sum of the gradients of a unit.
std::uint64_t reduce_bytes(const ModelPlan &plan, std::size_t unit, int position);
// Bytes of the gradient shards of all units.
std::uint64_t gradient_shard_bytes(const ModelPlan &plan, int position);
// Bytes of gradients of replicated parameters.
std::uint64_t replicated_gradient_bytes(const ModelPlan &plan);
// Bytes of a rank in sums over replicas, which are its gradient shards, and in the sum of
// replicated parameters over all ranks.
std::uint64_t replica_bytes(const ModelPlan &plan, int position);
// Bytes of the gradient shard of a unit, in f32, each bucket aligned.
std::uint64_t scratch_bytes(const ModelPlan &plan, std::size_t unit, int position);
// The largest of these among the units that use a gradient slot.
std::uint64_t scratch_bytes_of_slot(const ModelPlan &plan, std::size_t slot, int position);

// Slots for codes of parameters, with this rank's codes.
std::uint64_t parameter_code_bytes(const ModelPlan &plan, int position);

// The order of units that reports assume.
vescomm_fsdp_order_t predicted_order(const Spec &spec);
// Gathers of each unit in a steady step in this order.
std::vector<std::uint64_t> gathers_per_step(const Spec &spec, const ModelPlan &plan,
                                            int micro_batches);

// Computes the whole report. `report` has the rank (-1: the one with the largest peak) and
// the number of micro-batches (0: 1).
vescomm_fsdp_report_t make_report(const Spec &spec, const ModelPlan &plan,
                                  const vescomm_fsdp_report_t &report);

}  // namespace vescomm::fsdp
