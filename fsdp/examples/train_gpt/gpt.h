// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// A byte-level GPT (GPT-2's block) with hand-written forward and backward passes. Pure compute.
//
//     inputs ──► embedding ──► block 0 ──► … ──► block layers-1 ──► head ──► loss
//                 unit 0        unit 1             unit layers      unit layers+1
//
//     block:  x += proj(attention(layer_norm(x)));  x += down(gelu(up(layer_norm(x))))
//
// It owns only activations. Parameters and gradients are passed in for one unit at a time, so that
// an FSDP engine can gather a unit, let it compute, and release it. Weights are row-major [out, in]
// as in PyTorch; the tensors of a unit are in the order of describe().
//
// Communication, optimizer, initialisation and data are elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace train_gpt {

struct Shape {
    int layers = 0;
    int dim = 0;  // a multiple of heads
    int heads = 0;
    int context = 0;  // tokens in a sequence
    static constexpr int vocabulary = 256;  // all values of a byte

    int units() const { return layers + 2; }
    bool operator==(const Shape &) const = default;
};

// Element type of parameters, activations and gradients. With bf16 and f16 (passed as their 16
// bits), sums, LayerNorm, softmax, GELU, the loss and the residual stream are still computed in
// f32. In f16 gradients are infinite from 65520 on, and lost below 2^-25: the caller scales the
// loss.
enum class Precision { f32, bf16, f16 };

struct TensorDescription {
    enum class Initial { normal, zeros, ones };

    std::string name;
    std::vector<std::int64_t> shape;
    Initial initial;
    double standard_deviation;  // of Initial::normal

    std::int64_t elements() const;
};

struct UnitDescription {
    std::string name;
    std::vector<TensorDescription> tensors;
};

// Returns the tensors of every unit with GPT-2's initial values, in the order in which Gpt takes
// them.
std::vector<UnitDescription> describe(const Shape &shape);

// Threads: one at a time per object. Each call computes on the calling thread only, and sets that
// thread's number of OpenMP threads to one, because oneDNN would otherwise use every core.
class Gpt {
public:
    // Allocates all activations. Memory of unused sequences is never touched. With `recompute`,
    // blocks share the memory of everything but their input: call forward() of a block again
    // immediately before its backward(). Throws std::invalid_argument for an invalid shape.
    Gpt(const Shape &shape, Precision precision, int max_sequences, bool recompute = false);
    ~Gpt();
    Gpt(Gpt &&) noexcept;
    Gpt &operator=(Gpt &&) noexcept;

    // Starts a step on [sequences][context] bytes, which are copied. With 0 sequences, forward does
    // nothing, the loss is 0 and gradients are zeros. The first batch of a new size is slower,
    // because it creates oneDNN's kernels.
    void set_batch(int sequences, const std::uint8_t *inputs, const std::uint8_t *targets);

    // Computes one unit. Call it in ascending order of units.
    //
    // parameters: 16-byte aligned, read-only, borrowed until the call returns. The addresses may
    // differ in every call.
    void forward(int unit, std::span<const void *const> parameters);

    // Writes d(scale * loss_sum) / d(parameter) into gradients, or adds it when accumulate is set.
    // Call it in descending order of units after the last unit's forward(); scale is the same for
    // all units of a step. Gradients must not overlap parameters.
    void backward(int unit, std::span<const void *const> parameters,
                  std::span<void *const> gradients, bool accumulate, float scale);

    // Returns the loss in nats, summed over the tokens of this batch. Valid after the last unit's
    // forward().
    double loss_sum() const;

    // Returns the unnormalised scores of the next byte, valid from the last unit's forward() until
    // its next forward().
    std::span<const float> logits(int sequence, int position) const;

    std::size_t activation_bytes() const;

    class Network;  // the implementation, network.h

private:
    Shape shape_;
    int max_sequences_;
    std::unique_ptr<Network> network_;
};

}  // namespace train_gpt
