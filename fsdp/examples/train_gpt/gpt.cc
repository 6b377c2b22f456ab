// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Gpt checks arguments and calls Network.
#include "fsdp/examples/train_gpt/gpt.h"

#include <cassert>
#include <stdexcept>

#include "fsdp/examples/train_gpt/matmul.h"
#include "fsdp/examples/train_gpt/network.h"

namespace train_gpt {

namespace {

void check(const Shape &shape, int max_sequences) {
    if (shape.layers < 0 || shape.dim < 1 || shape.heads < 1 || shape.context < 1 ||
        max_sequences < 0) {
        throw std::invalid_argument(
            "a GPT needs at least 0 layers and sequences, and at least 1 dim, head and token: "
            "got " +
            std::to_string(shape.layers) + " layers, dim " + std::to_string(shape.dim) + ", " +
            std::to_string(shape.heads) + " heads, context " + std::to_string(shape.context) +
            ", " + std::to_string(max_sequences) + " sequences");
    }
    if (shape.dim % shape.heads != 0) {
        throw std::invalid_argument("dim " + std::to_string(shape.dim) +
                                    " is not a multiple of its " + std::to_string(shape.heads) +
                                    " heads");
    }
}

}  // namespace

Gpt::Gpt(const Shape &shape, Precision precision, int max_sequences, bool recompute)
    : shape_(shape), max_sequences_(max_sequences) {
    check(shape, max_sequences);
    use_one_thread();
    network_ = make_network(shape, precision, max_sequences, recompute);
}

Gpt::~Gpt() = default;
Gpt::Gpt(Gpt &&) noexcept = default;
Gpt &Gpt::operator=(Gpt &&) noexcept = default;

void Gpt::set_batch(int sequences, const std::uint8_t *inputs, const std::uint8_t *targets) {
    if (sequences < 0 || sequences > max_sequences_) {
        throw std::invalid_argument("a batch of " + std::to_string(sequences) +
                                    " sequences, but the model was made for 0 to " +
                                    std::to_string(max_sequences_));
    }
    use_one_thread();
    network_->set_batch(sequences, inputs, targets);
}

void Gpt::forward(int unit, std::span<const void *const> parameters) {
    assert(0 <= unit && unit < shape_.units());
    use_one_thread();
    network_->forward(unit, parameters);
}

void Gpt::backward(int unit, std::span<const void *const> parameters,
                   std::span<void *const> gradients, bool accumulate, float scale) {
    assert(0 <= unit && unit < shape_.units());
    assert(parameters.size() == gradients.size());
    use_one_thread();
    network_->backward(unit, parameters, gradients, accumulate, scale);
}

double Gpt::loss_sum() const {
    return network_->loss_sum();
}

std::span<const float> Gpt::logits(int sequence, int position) const {
    assert(0 <= position && position < shape_.context);
    const auto token = static_cast<std::size_t>(sequence) * shape_.context + position;
    return {network_->logits(token), Shape::vocabulary};
}

std::size_t Gpt::activation_bytes() const {
    return network_->activation_bytes();
}

}  // namespace train_gpt
