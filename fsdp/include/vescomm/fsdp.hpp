// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Fully sharded training on vescomm: parameters, gradients and optimizer state live in ragged
// shards, and a unit of the model is whole only while it computes.
//
//     master shard ── all_gather_v, cast ──► slot (one for the node) ──► you compute
//     (f32, this rank's)                                                      │
//          ▲                                                                  ▼
//          └─ AdamW ── gradient shard (f32) ◄── reduce_scatter_v ── gradient slot, you write
//
// The trainer announces what it is about to do; the engine never guesses and needs no autograd:
//
//     vescomm::fsdp::Engine engine(comm, units);
//     for (int u = 0; u < units; ++u) {
//         engine.before_forward(u);  compute(engine.parameters(u));  engine.after_forward(u);
//     }
//     for (int u = units; u-- > 0;) {
//         engine.before_backward(u);
//         compute(engine.parameters(u), engine.gradients(u));
//         engine.after_backward(u);
//     }
//     engine.step({.learning_rate = 3e-4});
//
// Every rank announces the same events in the same order. One thread; not copyable.
#ifndef VESCOMM_FSDP_HPP
#define VESCOMM_FSDP_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp {

// One parameter tensor.
struct TensorSpec {
    std::string name;  // unique within its unit
    std::vector<std::int64_t> shape;
    // Rows that stay on one rank: 1 any row (of a vector any element), 32 for 32 x 32 quantisation
    // blocks, -1 the whole tensor.
    std::int64_t block_rows = 1;
    // Leading dimensions whose sub-matrices restart the grid of blocks.
    std::int32_t batch_dimensions = 0;
};

// What is gathered at once, usually a layer.
struct UnitSpec {
    std::string name;  // unique
    std::vector<TensorSpec> tensors;
};

// What parameters are gathered as, and gradients written as. Masters, sums and moments are f32.
enum class Precision { f32, bf16 };

struct EngineOptions {
    Precision compute = Precision::f32;
    // Gathered units at a time: the unit that computes and slots - 1 that are fetched ahead. At
    // least 1.
    int slots = 2;
    // Units whose gradients may be under way at a time. At least 1.
    int gradient_slots = 2;
    // Equal shards, padded, instead of ragged ones.
    bool uniform = false;
};

struct StepOptions {
    double learning_rate = 3e-4;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    // Gradients are scaled down to this global norm when theirs is larger. 0: never.
    double max_norm = 1.0;
};

// Bytes. Per rank unless it says otherwise.
struct MemoryReport {
    std::uint64_t parameters = 0;  // number of parameters, not bytes
    std::uint64_t shards = 0;  // f32 masters
    std::uint64_t gradient_shards = 0;  // f32
    std::uint64_t optimizer = 0;  // two f32 moments
    std::uint64_t slabs_per_node = 0;  // gathered slots, once for all ranks of a node
    std::uint64_t gradient_slots = 0;
    // What a rank would hold if nothing were sharded: master, gradient and moments, and a copy in
    // bf16 when that is what computes.
    std::uint64_t replicated = 0;
    std::uint64_t largest_shard = 0;  // elements, over ranks
    std::uint64_t padding = 0;  // elements
};

class VESCOMM_API Engine {
public:
    // Plans, allocates and agrees with the other ranks. Parameters start as zeros.
    // Collective. `comm` must outlive the engine. Throws VescommError, or std::invalid_argument
    // for units that cannot be planned.
    Engine(Communicator &comm, const std::vector<UnitSpec> &units,
           const EngineOptions &options = {});
    ~Engine();
    Engine(Engine &&) noexcept;
    Engine &operator=(Engine &&) noexcept;

    int units() const;

    // Sets parameters: calls `fill` for each piece of a tensor that this rank owns, with the first
    // element's index within the tensor and the values to set. Not collective.
    using Fill = std::function<void(int unit, int tensor, std::int64_t first, std::span<float>)>;
    void initialise(const Fill &fill);

    // Returns when the unit's parameters are here; starts fetching the units that follow.
    void before_forward(int unit);
    void after_forward(int unit);
    // The same, in descending order; and the gradients of the unit may be written.
    void before_backward(int unit);
    // All gradients of the unit are written; starts summing them over ranks.
    void after_backward(int unit);

    // Pointers by tensor, in the order of the unit's specification. Parameters are read only and
    // valid between before_ and after_; gradients must be overwritten whole between
    // before_backward() and after_backward(), with this rank's share of the sum.
    std::span<const void *const> parameters(int unit) const;
    std::span<void *const> gradients(int unit) const;

    // Waits for all sums, clips, and updates this rank's shards with AdamW. Every unit must have
    // gone through backward since the last step. Collective. Returns the global norm of the
    // gradients before clipping, the same on every rank.
    double step(const StepOptions &options);

    // Sum over ranks, added in the order of ranks: the same on every rank. Collective.
    double sum(double mine);

    MemoryReport memory() const;

    // Seconds that the calling thread spent in this engine's events so far: exposed communication.
    double exposed_seconds() const;
    // Seconds of them in AdamW and norms, which are not communication.
    double optimizer_seconds() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace vescomm::fsdp

#endif
