// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner. It takes a list of tensors, places each tensor in a fused buffer, cuts the buffer
// into shards, and reports how good the layout is. It only computes: no communicator, device, file
// or clock is involved, and the same input gives the same answer on every machine.
//
//     vescomm::planner::Problem problem{{{"w1", {28672, 8192}, 32}, {"norm", {8192}}}, 128};
//     vescomm::planner::Answer answer = vescomm::planner::plan(problem);
//     auto layout = vescomm::planner::make_layout(problem, answer);
//
// planner.h is the C interface. docs/planner-algorithms.md explains the algorithms.
#pragma once

#if __cplusplus < 202002L
#error "planner.hpp needs C++20, for defaulted comparisons; use planner.h in C++17"
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm::planner {

struct Tensor {
    std::string name;  // unique
    std::vector<std::int64_t> shape;  // row-major
    // Rows of a block, which stays on one rank. 0 or 1: a cut may lie between any two rows (in a
    // vector: any two elements). A tile of 32 x 32 needs 32 whole rows. -1: the whole tensor is a
    // block, or each sub-matrix if there are several.
    std::int64_t block_rows = 1;
    // Number of leading dimensions that index sub-matrices, such as 1 for the experts of [experts,
    // rows, columns]. The grid of blocks restarts at each sub-matrix.
    std::int32_t batch_dimensions = 0;
    // The tensor starts at a multiple of this number of elements, in addition to
    // Options::start_alignment. 0: only start_alignment applies.
    std::int64_t alignment = 0;
};

enum class Mode : std::int32_t {
    // The largest shard is as small as possible. Padding only aligns starts.
    ragged = 0,
    // All shards are equal, padding included, so that any equal-count library can move them.
    uniform = 1,
    // Unequal shards. All ranks own about the same number of bytes of all units together; the
    // largest shard of one unit may therefore exceed its minimum (Options::unit_imbalance). See
    // planner_model.hpp.
    balanced = 2,
    // Every matrix is whole on one rank, for optimizers that need this. All ranks have about the
    // same work of the optimizer.
    owner = 3,
    // Ragged or uniform, whichever has the smaller estimated communication time.
    automatic = 4,
};

// The optimizer's work on a matrix, by which Mode::owner balances.
enum class Work : std::int32_t {
    // s * s * (2 * l + s), where s is the shorter and l the longer side. For a vector: its
    // elements.
    muon = 0,
    // The number of elements.
    elements = 1,
};

// Cost model of communication, to choose between uniform and ragged.
struct Costs {
    double bytes_per_second = 50e9;  // received by a rank
    double seconds_per_collective = 30e-6;
    double seconds_per_unequal = 15e-6;  // added to a collective with unequal shards
};

struct Options {
    Mode mode = Mode::ragged;
    // Every tensor starts at a multiple of this many elements, and a uniform shard is a multiple of
    // it. 64 elements are 128 bytes of bf16. Matrix kernels require at least 16 bytes, and NCCL is
    // several times slower with less.
    std::int64_t start_alignment = 64;
    // Ragged cuts lie on multiples of this wherever blocks allow it, and shards are compared after
    // rounding up to it: saving a rank fewer elements is not worth an unaligned cut. With weights,
    // a few elements can be several times the share of a light rank, so only shards that grow by at
    // most a hundredth are rounded up.
    std::int64_t cut_alignment = 64;
    // Maximum size of a shard. A layout with a larger shard is rejected. 0: no limit.
    std::int64_t shard_limit = 0;
    // Maximum number of steps to search for a better order, or for the proof that there is none.
    // Used only if a layout does not meet the lower bound. A step evaluates one state of the
    // search, or one kind of tensors in it, and takes about 10 ns. The limit is not a time, so that
    // the same input gives the same answer on every machine. 0: no search. The default of
    // vescomm-plan is 20,000,000.
    std::int64_t search_steps = 0;
    // Mode::balanced: the fraction by which the largest shard of one unit may exceed its minimum.
    // The owner of that shard is the straggler of the unit's collectives, so a smaller excess is
    // used if it balances as well.
    double unit_imbalance = 0.25;
    Work work = Work::muon;  // Mode::owner: the work that is balanced
    Costs costs = {};
};

struct Problem {
    std::vector<Tensor> tensors;
    int ranks = 1;
    // A rank with twice the weight of another takes twice the elements. Empty: all weights are
    // equal. With weights, the planner minimises the largest ratio of a shard to its rank's share
    // instead of the largest shard. The modes uniform and owner do not support weights.
    std::vector<std::int64_t> weights = {};
};

// The place of one tensor.
struct Place {
    std::size_t tensor = 0;  // index in the problem
    std::int64_t offset = 0;  // first element in the buffer
    std::int64_t block = 1;  // elements that stay on one rank

    bool operator==(const Place &) const = default;
};

struct Answer {
    // False: there is no layout. Then only `explanation` and lower_bound are set.
    bool feasible = false;
    // One sentence: the quality of the layout, or the reason why there is none and a remedy.
    std::string explanation;

    std::vector<Place> places;  // in order of offset
    std::vector<std::int64_t> cuts;  // ranks + 1
    std::string order;  // name of the tensors' order, such as "default" or "searched"
    std::vector<std::string> orders;  // names of the orders tried

    std::int64_t elements = 0;  // of the whole buffer
    std::int64_t padding = 0;  // elements of the buffer that belong to no tensor
    std::int64_t largest_shard = 0;  // elements, padding included
    double mean_shard = 0;  // elements of tensors for each rank
    // No layout of this mode, in any order of the tensors, has a smaller largest_shard.
    std::int64_t lower_bound = 0;
    // True when optimality is proved. Uniform: no layout has smaller shards. Ragged: none has a
    // smaller largest shard after rounding up to Options::cut_alignment; if lower_bound is
    // largest_shard, also without rounding. With weights: none has a smaller largest_over_share.
    bool optimal = false;
    // The largest ratio of a shard to its rank's share. The share is the mean, or with weights the
    // part that the rank's weight gives it.
    double largest_over_share = 1;
    std::int64_t steps = 0;  // search steps used, of Options::search_steps
    // No layout of this mode has a smaller largest_over_share. Without weights this is lower_bound
    // over the mean.
    double lower_bound_over_share = 1;
};

// Plans one buffer. Throws std::invalid_argument with a sentence that names the tensor or the
// option.
// Cost: O(tensors + ranks) memory; milliseconds for 45,395 tensors or 100,000 ranks.
VESCOMM_API Answer plan(const Problem &problem, const Options &options = {});

struct FreeLayout {
    void operator()(vescomm_layout_t *layout) const noexcept { vescomm_layout_free(layout); }
};

using LayoutPointer = std::unique_ptr<vescomm_layout_t, FreeLayout>;

// An error of vescomm_layout_create().
struct VESCOMM_API LayoutError : std::runtime_error {
    LayoutError(vescomm_status_t code, const char *text) : std::runtime_error(text), status(code) {}

    vescomm_status_t status;
};

// Makes the layout of a feasible answer to `problem`. Throws LayoutError, for instance when two
// tensors have one name.
VESCOMM_API LayoutPointer make_layout(const Problem &problem, const Answer &answer);

}  // namespace vescomm::planner
