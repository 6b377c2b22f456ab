// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A small model, and a trainer that drives the engine through its public interface. Gradients are
// whole numbers, so that sums over ranks and micro-batches are exact in any order.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "vescomm/fsdp.hpp"

namespace vescomm::fsdp::testing {

// Runs the ranks as threads. `node_of` has the emulated node of each rank; empty: one node.
// `timeout_seconds`: of the communicators.
void run_ranks(int ranks, const std::function<void(Communicator &)> &body,
               const std::vector<int> &node_of = {}, double timeout_seconds = 60);

struct UnitModel {
    std::string name;
    std::vector<ParameterSpec> parameters;
    std::uint32_t flags = 0;
};

// Odd sizes, blocks of rows, a whole tensor, a scalar, an empty tensor, batches.
std::vector<UnitModel> odd_model();

std::int64_t elements(const ParameterSpec &parameter);

// A specification, and the ids of its parameters by unit.
struct Described {
    Spec spec;
    std::vector<std::vector<std::uint64_t>> ids;
};

// `mesh`: a preset, or axes such as "r:0 r:2 3:2": replicas, and axes that shard as zero1, zero2 or
// zero3, with their sizes. R and p: replicas, and zero3, with partial gradients.
void use_mesh(Spec &spec, const std::string &mesh);

Described describe(const std::vector<UnitModel> &units, const std::string &mesh = "zero3",
                   const vescomm_fsdp_spec_options_t &options = vescomm_fsdp_spec_options_init());

std::vector<std::uint64_t> all_ids(const Described &described);

inline float initial(std::uint64_t id, std::int64_t element) {
    return static_cast<float>((element * 31 + static_cast<std::int64_t>(id) * 7) % 101 - 50) /
           64.0f;
}

void fill(Engine &engine);

// The gradient of one element, summed over all ranks and micro-batches of a step.
inline int total_gradient(std::uint64_t id, std::int64_t element, int step) {
    return static_cast<int>((element * 13 + static_cast<std::int64_t>(id) * 5 + step * 17) % 41) -
           20;
}

// The term of one of `parts` contributions. The terms add up to the total.
inline int gradient_term(int total, int part, int parts) {
    const auto floor_part = [&](int i) { return (total + 20 + i) / parts; };
    if (part < parts - 1) return floor_part(part);
    int rest = total;
    for (int other = 0; other < parts - 1; ++other) rest -= floor_part(other);
    return rest;
}

std::uint16_t to_bf16(float x);

float from_bf16(std::uint16_t half);

std::uint16_t to_f16(float x);

float from_f16(std::uint16_t half);

// Element of a view of f32, bf16 or f16.
inline float read(const vescomm_fsdp_view_t &view, std::int64_t element) {
    if (view.type == VESCOMM_F32) return static_cast<const float *>(view.data)[element];
    if (view.type == VESCOMM_F16)
        return from_f16(static_cast<const std::uint16_t *>(view.data)[element]);
    return from_bf16(static_cast<const std::uint16_t *>(view.data)[element]);
}

inline void write(const vescomm_fsdp_view_t &view, std::int64_t element, float x) {
    if (view.type == VESCOMM_F32) static_cast<float *>(view.data)[element] = x;
    else if (view.type == VESCOMM_F16) static_cast<std::uint16_t *>(view.data)[element] = to_f16(x);
    else static_cast<std::uint16_t *>(view.data)[element] = to_bf16(x);
}

// Writes one term of the gradients of a unit.
void write_gradients(Engine &engine, const std::vector<std::uint64_t> &ids, int step, int part,
                     int parts, bool push = false);

// How a test trains.
struct Training {
    int steps = 3;
    int micro_batches = 1;
    double max_norm = 0;
    bool push = false;
    bool recompute = false;  // open a unit again inside its backward pass
};

struct Outcome {
    std::vector<float> parameters;  // all of them, in order of unit and element
    std::vector<double> norms;
    vescomm_fsdp_counters_t counters;  // of the last step
};

// Opens all units for evaluation and returns all parameters.
std::vector<float> read_all(Engine &engine, const std::vector<std::vector<std::uint64_t>> &ids);

// One micro-batch: all units up, all units down.
void micro_batch(Engine &engine, const std::vector<std::vector<std::uint64_t>> &ids,
                 const Training &training, int step, int part, int parts, bool last);

Outcome train(Communicator &comm, const Described &described, const Training &training);

// Trains on a number of ranks, checks that all ranks see the same parameters, and returns the
// outcome of rank 0.
Outcome train_on(int ranks, const std::vector<UnitModel> &units, const std::string &preset,
                 const vescomm_fsdp_spec_options_t &options, const Training &training,
                 const std::vector<int> &node_of = {});

}  // namespace vescomm::fsdp::testing
