// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/sample.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "fsdp/examples/train_gpt/gpt.h"
#include "fsdp/examples/train_gpt/random.h"

namespace train_gpt {

namespace {

// Low enough to write words, high enough not to repeat them.
constexpr double temperature = 0.8;

// Every byte costs a forward pass over the whole window, so that it is kept short.
constexpr int max_chunk = 128;

}  // namespace

int draw(std::span<const float> scores, double temperature, double chance) {
    const float largest = *std::max_element(scores.begin(), scores.end());
    const auto weight = [&](float score) { return std::exp((score - largest) / temperature); };
    double rest = 0;
    for (const float score : scores) rest += weight(score);
    rest *= chance;
    for (std::size_t byte = 0; byte < scores.size(); ++byte) {
        rest -= weight(scores[byte]);
        if (rest < 0) return static_cast<int>(byte);
    }
    return static_cast<int>(scores.size()) - 1;
}

std::string write_sample(vescomm::fsdp::Engine &engine, int rank, const Options &options) {
    // A model of a shorter context: the positions it needs are the first rows of their table.
    Shape shape = options.shape;
    shape.context = std::min(shape.context, max_chunk);
    std::optional<Gpt> model;
    if (rank == 0) model.emplace(shape, options.precision, 1);

    const RandomStream chances(options.seed, RandomStream::Purpose::sample);
    const auto context = static_cast<std::size_t>(shape.context);
    std::string text = options.prompt;
    // The bytes that the model sees, text[begin, ...). When they fill the window, half of them go.
    std::size_t begin = text.size() > context ? text.size() - context : 0;
    std::vector<std::uint8_t> window(context, 0);
    for (int byte = 0; byte < options.sample; ++byte) {
        if (model) {
            if (text.size() - begin > context) begin = text.size() - (context + 1) / 2;
            // What follows in the window has no influence on the bytes before it.
            std::copy(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(),
                      window.begin());
            model->set_batch(1, window.data(), window.data());
        }
        for (int unit = 0; unit < engine.units(); ++unit) {
            engine.before_forward(unit);
            if (model) model->forward(unit, engine.parameters(unit));
            engine.after_forward(unit);
        }
        if (!model) continue;
        const int last = static_cast<int>(text.size() - begin) - 1;
        text += static_cast<char>(draw(model->logits(0, last), temperature, chances.uniform(byte)));
    }
    return model ? text : "";
}

}  // namespace train_gpt
