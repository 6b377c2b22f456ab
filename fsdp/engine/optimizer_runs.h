// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The parts of shards that optimizers update in one call. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdp/spec/model_plan.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// Consecutive elements of a bucket whose parameters are in one group.
struct OptimizerRun {
    std::size_t group = 0;
    std::size_t bucket = 0;
    std::int64_t offset = 0;  // in the shard of the bucket
    std::int64_t elements = 0;
    std::vector<vescomm_optimizer_piece_t> pieces;  // offsets and blocks within the run
    std::vector<void *> states;  // of the optimizer, from the first element of the run on
    std::int64_t block = 0;  // first one of the run among the blocks of the shard
    bool matrix = false;  // one matrix, for vescomm_optimizer_kind_t.matrix
};

// Divides the shards of a position into runs.
std::vector<OptimizerRun> make_runs(const Spec &spec, const ModelPlan &plan, int position);
// Divides a run into parts of `elements` elements, between blocks of `block` elements, -1: between
// matrices. The last block of a part may go beyond `elements`.
std::vector<OptimizerRun> divide_run(const OptimizerRun &run, std::int64_t elements,
                                     std::int64_t block);

// Divides a run into its matrices, and the parts between them.
std::vector<OptimizerRun> divide_matrices(const OptimizerRun &run, std::int64_t block);

// Divides runs for the kinds of their groups: matrices, and, if the kind is concurrent, parts of
// `elements` elements. 0: only matrices.
std::vector<OptimizerRun> divide_runs(std::vector<OptimizerRun> &&runs, const Spec &spec,
                                      std::int64_t elements);

// Divides runs for kinds with device_matrix: matrices only.
std::vector<OptimizerRun> divide_for_device(std::vector<OptimizerRun> &&runs, const Spec &spec);

}  // namespace vescomm::fsdp
