// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner: tensors in, layout out. It decides where each tensor of a fused buffer lies and
// where the buffer is cut into shards, and says how good the answer is. Numbers only: no
// communicator, no device, no files, no clock; the same input gives the same answer on every
// machine.
//
//     vescomm::planner::Problem problem{{{"w1", {28672, 8192}, 32}, {"norm", {8192}}}, 128};
//     vescomm::planner::Answer answer = vescomm::planner::plan(problem);
//     auto layout = vescomm::planner::make_layout(problem, answer);
//
// planner.h offers the same to C. place.h, uniform.h and cut.h explain the algorithms.
#pragma once

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
    // Rows that stay on one rank. 0 or 1: any row (of a vector: any element). A tile of 32 x 32 is
    // 32 whole rows. -1: the whole tensor, or each whole sub-matrix where there are several.
    std::int64_t block_rows = 1;
    // Leading dimensions whose sub-matrices restart the grid of blocks, such as the experts of a
    // fused [experts, rows, columns] tensor.
    std::int32_t batch_dimensions = 0;
    // Starts at a multiple of this many elements, and of Options::start_alignment. 0: only of that.
    std::int64_t alignment = 0;
};

enum class Mode : std::int32_t {
    // The largest shard as small as possible; padding only where starts are aligned.
    ragged = 0,
    // All shards equal, padding included, so that any equal-count library can move them.
    uniform = 1,
    // Ragged, and all units together leave every rank with the same; see planner_model.hpp.
    balanced = 2,
    // Whole matrices on one rank, for optimizers that need them; the ranks' work is even.
    owner = 3,
    // Uniform or ragged, whichever costs less.
    automatic = 4,
};

// What an optimizer does with a matrix of rows x columns, to balance Mode::owner by.
enum class Work : std::int32_t {
    muon = 0,  // s * s * (2 * l + s), s the shorter side and l the longer; a vector: its elements
    elements = 1,
};

// What moving bytes costs, to compare uniform with ragged by.
struct Costs {
    double bytes_per_second = 50e9;  // that a rank receives
    double seconds_per_collective = 30e-6;
    double seconds_per_unequal = 15e-6;  // what unequal shards add to that
};

struct Options {
    Mode mode = Mode::ragged;
    // Every tensor starts at a multiple of this many elements, and a uniform shard is one. 64: 128
    // bytes of bf16. Matrix kernels and NCCL want at least 16 bytes.
    std::int64_t start_alignment = 64;
    // Ragged cuts lie on multiples of this wherever blocks allow it. Shards are compared after
    // rounding up to it: saving a rank fewer elements is not worth an unaligned cut. With weights,
    // where a few elements can be several times the share of a light rank, only shards that do not
    // grow by more than a hundredth are rounded up.
    std::int64_t cut_alignment = 64;
    // A layout with a larger shard than this is no answer. 0: no limit.
    std::int64_t shard_limit = 0;
    // Where the bound is not met: how many steps to search for a better order, or for the proof
    // that there is none. A step looks at one tensor, about 10 ns. Not a time, so that the same
    // input gives the same answer on every machine.
    std::int64_t search_steps = 0;
    // Mode::balanced: how much larger than it must be the largest shard of one unit may get, as a
    // fraction. Its owner is the straggler of that unit's collectives, so less is taken where that
    // balances as well.
    double unit_imbalance = 0.25;
    Work work = Work::muon;
    Costs costs = {};
};

struct Problem {
    std::vector<Tensor> tensors;
    int ranks = 1;
    // A rank with twice the weight of another takes twice the elements. Empty: all the same.
    // What is minimised is then not the largest shard but the largest ratio of a shard to its
    // rank's share. Modes uniform and owner cannot have them.
    std::vector<std::int64_t> weights = {};
};

// Where one tensor lies.
struct Place {
    std::size_t tensor = 0;  // index in the problem
    std::int64_t offset = 0;  // first element in the buffer
    std::int64_t block = 1;  // elements that stay on one rank

    bool operator==(const Place &) const = default;
};

struct Answer {
    // False: there is no layout, and `explanation` says why; nothing else is set but lower_bound.
    bool feasible = false;
    // One sentence: how good the layout is, or why there is none, and what would help.
    std::string explanation;

    std::vector<Place> places;  // in order of offset
    std::vector<std::int64_t> cuts;  // ranks + 1
    std::string order;  // in which tensors were laid out, such as "default" or "searched"
    std::vector<std::string> orders;  // that were tried

    std::int64_t elements = 0;  // of the whole buffer
    std::int64_t padding = 0;  // elements of the buffer that belong to no tensor
    std::int64_t largest_shard = 0;  // elements, padding included
    double mean_shard = 0;  // elements of tensors for each rank
    // No layout of this mode, whatever the order of the tensors, has a smaller largest_shard.
    std::int64_t lower_bound = 0;
    // Proved. Uniform: no layout has smaller shards. Ragged: none has a smaller largest shard in
    // multiples of Options::cut_alignment, or none at all if lower_bound is largest_shard. With
    // weights: none has a smaller largest_over_share.
    bool optimal = false;
    // A shard over what its rank should have: the mean, or what Problem::weights say. The largest.
    double largest_over_share = 1;
    std::int64_t steps = 0;  // taken of Options::search_steps
    // No layout of this mode has a smaller largest_over_share. Without weights: lower_bound over
    // the mean.
    double lower_bound_over_share = 1;
};

// Cost: O(tensors + ranks) memory; milliseconds for 45,395 tensors or 100,000 ranks.
// Throws std::invalid_argument with a sentence that names the tensor or the option.
VESCOMM_API Answer plan(const Problem &problem, const Options &options = {});

struct FreeLayout {
    void operator()(vescomm_layout_t *layout) const noexcept { vescomm_layout_free(layout); }
};

using LayoutPointer = std::unique_ptr<vescomm_layout_t, FreeLayout>;

// What vescomm_layout_create() said.
struct VESCOMM_API LayoutError : std::runtime_error {
    LayoutError(vescomm_status_t status, const char *text)
        : std::runtime_error(text), status(status) {}

    vescomm_status_t status;
};

// The layout of a feasible answer to that problem. Throws LayoutError, for instance when two
// tensors have one name.
VESCOMM_API LayoutPointer make_layout(const Problem &problem, const Answer &answer);

}  // namespace vescomm::planner
