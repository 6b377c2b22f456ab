// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The model's tensors by unit: names, shapes and GPT-2's initial values.
#include <cmath>
#include <functional>
#include <numeric>

#include "fsdp/examples/train_gpt/gpt.h"

namespace train_gpt {

namespace {

using Initial = TensorDescription::Initial;

TensorDescription normal(std::string name, std::int64_t rows, std::int64_t columns,
                         double standard_deviation) {
    return {std::move(name), {rows, columns}, Initial::normal, standard_deviation};
}

TensorDescription zeros(std::string name, std::int64_t elements) {
    return {std::move(name), {elements}, Initial::zeros, 0};
}

TensorDescription ones(std::string name, std::int64_t elements) {
    return {std::move(name), {elements}, Initial::ones, 0};
}

}  // namespace

std::int64_t TensorDescription::elements() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<UnitDescription> describe(const Shape &shape) {
    const std::int64_t dim = shape.dim;
    const double deviation = 0.02;
    // Every block adds twice to the residual stream. The factor makes its variance independent of
    // depth.
    // Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, 2.3.
    const double residual_deviation = deviation / std::sqrt(2.0 * shape.layers);

    std::vector<UnitDescription> units;
    units.push_back({"embedding",
                     {normal("token", Shape::vocabulary, dim, deviation),
                      normal("position", shape.context, dim, deviation)}});
    for (int layer = 0; layer < shape.layers; ++layer) {
        units.push_back(
            {"block." + std::to_string(layer),
             {ones("norm1.weight", dim), zeros("norm1.bias", dim),
              normal("qkv.weight", 3 * dim, dim, deviation), zeros("qkv.bias", 3 * dim),
              normal("proj.weight", dim, dim, residual_deviation), zeros("proj.bias", dim),
              ones("norm2.weight", dim), zeros("norm2.bias", dim),
              normal("up.weight", 4 * dim, dim, deviation), zeros("up.bias", 4 * dim),
              normal("down.weight", dim, 4 * dim, residual_deviation), zeros("down.bias", dim)}});
    }
    units.push_back({"head",
                     {ones("norm.weight", dim), zeros("norm.bias", dim),
                      normal("weight", Shape::vocabulary, dim, deviation)}});
    return units;
}

}  // namespace train_gpt
