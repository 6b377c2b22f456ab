// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// A byte-level GPT (GPT-2's block), forward and backward written out by hand: pure compute.
//
//     inputs ──► embedding ──► block 0 ──► … ──► block layers-1 ──► head ──► loss
//                 unit 0        unit 1             unit layers      unit layers+1
//
//     block:  x += proj(attention(layer_norm(x)));  x += down(gelu(up(layer_norm(x))))
//
// It owns activations and nothing else. Parameters and gradients are lent to it, one unit at a
// time, so that an FSDP engine can gather a unit, let it compute, and drop it again. Weights are
// row-major [out, in] as in PyTorch; the tensors of a unit come in the order of describe().
//
// Not here: communication, optimizer, initialisation, data.
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
    static constexpr int vocabulary = 256;  // bytes

    int units() const { return layers + 2; }
    bool operator==(const Shape &) const = default;
};

// What parameters, activations and gradients are made of. In bf16 (lent as its 16 bits) sums,
// LayerNorm, softmax, GELU, the loss and the residual stream are still computed in f32.
enum class Precision { f32, bf16 };

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

// The tensors of every unit with GPT-2's initial values, in the order they are lent to Gpt.
std::vector<UnitDescription> describe(const Shape &shape);

// Threads: one at a time per object; each call computes on the calling thread only, for which it
// sets the number of OpenMP threads to one (oneDNN would otherwise take every core).
class Gpt {
public:
    // Allocates all activations; memory of sequences that are never used is never touched.
    // Throws std::invalid_argument for a shape that is no model.
    Gpt(const Shape &shape, Precision precision, int max_sequences);
    ~Gpt();
    Gpt(Gpt &&) noexcept;
    Gpt &operator=(Gpt &&) noexcept;

    // Starts a step on [sequences][context] bytes, which are copied. No sequences is legal: forward
    // does nothing, the loss is 0 and gradients are zeros. The first batch of a new size is slower,
    // since it creates oneDNN's kernels.
    void set_batch(int sequences, const std::uint8_t *inputs, const std::uint8_t *targets);

    // Computes one unit; to be called in ascending order.
    //
    // parameters: 16-byte aligned, read only, borrowed until the call returns; they may lie at
    // another address in every call.
    void forward(int unit, std::span<const void *const> parameters);

    // Writes d(scale * loss_sum) / d(parameter) into gradients, or adds it when accumulate is set.
    // To be called in descending order after the last unit's forward; scale is the same for all
    // units of a step. Gradients do not overlap parameters.
    void backward(int unit, std::span<const void *const> parameters,
                  std::span<void *const> gradients, bool accumulate, float scale);

    // Nats summed over the tokens of this batch; valid after the last unit's forward.
    double loss_sum() const;

    // The unnormalised scores of the next byte, valid after the last unit's forward until the next
    // one.
    std::span<const float> logits(int sequence, int position) const;

    std::size_t activation_bytes() const;

    class Network;  // the implementation, network.h

private:
    Shape shape_;
    int max_sequences_;
    std::unique_ptr<Network> network_;
};

}  // namespace train_gpt
