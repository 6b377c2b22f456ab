// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The implementation of Gpt for one element type. Gpt checks the arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fsdp/examples/train_gpt/gpt.h"

namespace train_gpt {

class Gpt::Network {
public:
    virtual ~Network() = default;

    virtual void set_batch(int sequences, const std::uint8_t *inputs,
                           const std::uint8_t *targets) = 0;
    virtual void forward(int unit, std::span<const void *const> parameters) = 0;
    virtual void backward(int unit, std::span<const void *const> parameters,
                          std::span<void *const> gradients, bool accumulate, float scale) = 0;
    virtual double loss_sum() const = 0;
    virtual const float *logits(std::size_t token) const = 0;
    virtual std::size_t activation_bytes() const = 0;
};

std::unique_ptr<Gpt::Network> make_network(const Shape &shape, Precision precision,
                                           int max_sequences, bool recompute);

}  // namespace train_gpt
