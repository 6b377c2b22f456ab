// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/sample.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "fsdp/examples/train_gpt/gpt.h"
#include "fsdp/examples/train_gpt/random.h"
#include "fsdp/examples/train_gpt/trainer.h"

namespace train_gpt {

namespace {

// Low enough to generate words, high enough to avoid repetition.
constexpr double temperature = 0.8;

// Every byte costs a forward pass over the whole context, so the context is limited.
constexpr int max_context = 128;

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
    // A model with a shorter context uses the first rows of the position embedding.
    Shape shape = options.shape;
    shape.context = std::min(shape.context, max_context);
    std::optional<Gpt> model;
    if (rank == 0) model.emplace(shape, options.precision, 1);

    const RandomStream chances(options.seed, RandomStream::Purpose::sample);
    const auto context = static_cast<std::size_t>(shape.context);
    std::string text = options.prompt;
    // The model sees text[begin, ...). When this exceeds the context, half of it is dropped.
    std::size_t begin = text.size() > context ? text.size() - context : 0;
    std::vector<std::uint8_t> window(context, 0);
    Parameters parameters(engine, options.shape);
    for (int byte = 0; byte < options.sample; ++byte) {
        if (model) {
            if (text.size() - begin > context) begin = text.size() - (context + 1) / 2;
            // Later bytes of the window do not influence earlier ones.
            std::copy(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(),
                      window.begin());
            model->set_batch(1, window.data(), window.data());
        }
        engine.begin(VESCOMM_FSDP_EVAL);
        for (int unit = 0; unit < parameters.units(); ++unit) {
            engine.pre_forward(unit);
            if (model) model->forward(unit, parameters.of(unit));
            engine.post_forward(unit);
        }
        if (!model) continue;
        const int last = static_cast<int>(text.size() - begin) - 1;
        text += static_cast<char>(draw(model->logits(0, last), temperature, chances.uniform(byte)));
    }
    return model ? text : "";
}

}  // namespace train_gpt
