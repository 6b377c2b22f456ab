// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Fully sharded training on vescomm. Parameters, gradients and optimizer state are kept in ragged
// shards. A unit of the model is gathered only while it computes.
//
//     master shard ── all_gather_v, cast ──► slot (one for the node) ──► you compute
//     (f32, this rank's)                                                      │
//          ▲                                                                  ▼
//          └─ AdamW ── gradient shard (f32) ◄── reduce_scatter_v ── gradient slot, you write
//
// The trainer announces each computation. The engine does not predict it and needs no autograd:
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
// Every rank announces the same events in the same order. An engine is used by one thread at a time
// and is not copyable.
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
    // Rows of a block, which stays on one rank: 1 for any row (in a vector any element), 32 for
    // quantisation blocks of 32 x 32, -1 for the whole tensor.
    std::int64_t block_rows = 1;
    // Leading dimensions whose sub-matrices restart the grid of blocks.
    std::int32_t batch_dimensions = 0;
};

// Tensors that are gathered together, usually a layer.
struct UnitSpec {
    std::string name;  // unique
    std::vector<TensorSpec> tensors;
};

// Type of gathered parameters and of the gradients that the trainer writes. Masters, sums and
// moments are f32.
enum class Precision {
    f32,  // parameters are gathered as they are
    bf16,  // parameters are rounded to bf16 before they are gathered
};

struct EngineOptions {
    Precision compute = Precision::f32;
    // Units gathered at the same time: the unit that computes and slots - 1 units fetched ahead. At
    // least 1.
    int slots = 2;
    // Units whose gradients may be in transfer at the same time. At least 1.
    int gradient_slots = 2;
    // Use equal, padded shards instead of ragged ones.
    bool uniform = false;
};

struct StepOptions {
    double learning_rate = 3e-4;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    // Largest global norm of the gradients; larger gradients are scaled down to it. 0: no limit.
    double max_norm = 1.0;
};

// Memory of an engine, in bytes of this rank unless a member says otherwise.
struct MemoryReport {
    std::uint64_t parameters = 0;  // number of parameters, not bytes
    std::uint64_t shards = 0;  // f32 masters
    std::uint64_t gradient_shards = 0;  // f32
    std::uint64_t optimizer = 0;  // two f32 moments
    std::uint64_t slabs_per_node = 0;  // gathered slots, shared by all ranks of a node
    std::uint64_t gradient_slots = 0;
    // Bytes of a rank without sharding: master, gradient and moments, and a copy in bf16 if the
    // precision is bf16.
    std::uint64_t replicated = 0;
    std::uint64_t largest_shard = 0;  // elements: sum over units of the largest shard of any rank
    std::uint64_t padding = 0;  // elements of all ranks
};

class VESCOMM_API Engine {
public:
    // Plans the units and creates memory, buffers and requests. Parameters start as zeros. `comm`
    // must outlive the engine. Throws Error, or std::invalid_argument for units that cannot
    // be planned. Collective.
    Engine(Communicator &comm, const std::vector<UnitSpec> &units,
           const EngineOptions &options = {});
    ~Engine();
    Engine(Engine &&) noexcept;
    Engine &operator=(Engine &&) noexcept;

    int units() const;

    // Sets parameters. Calls `fill` for each piece of a tensor that this rank owns, with the index
    // of its first element in the tensor and the values to set. Not collective.
    using Fill = std::function<void(int unit, int tensor, std::int64_t first, std::span<float>)>;
    void initialise(const Fill &fill);

    // Waits until the unit's parameters are gathered, and starts to fetch the following units.
    void before_forward(int unit);
    // Announces that the forward pass of the unit no longer reads its parameters.
    void after_forward(int unit);
    // before_forward() for the backward pass, in descending order of units. After it returns, the
    // gradients of the unit may be written.
    void before_backward(int unit);
    // Announces that all gradients of the unit are written, and starts to sum them over ranks.
    void after_backward(int unit);

    // Return pointers by tensor, in the order of the unit's specification. Parameters are read-only
    // and valid between before_*() and after_*(). Gradients are written between before_backward()
    // and after_backward(): every element must be overwritten with this rank's term of the sum.
    std::span<const void *const> parameters(int unit) const;
    std::span<void *const> gradients(int unit) const;

    // Waits for all sums, clips, and updates this rank's shards with AdamW. Every unit must have
    // gone through backward since the last step. Returns the global norm of the gradients before
    // clipping, which is equal on all ranks. Collective.
    double step(const StepOptions &options);

    // Returns the sum over ranks, added in the order of ranks, so that it is equal on all ranks.
    // Collective.
    double sum(double mine);

    MemoryReport memory() const;

    // Returns the exposed communication so far: seconds that the calling thread spent in this
    // engine's functions, without optimizer_seconds().
    double exposed_seconds() const;
    // Returns the seconds spent so far in AdamW and norms.
    double optimizer_seconds() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace vescomm::fsdp

#endif
