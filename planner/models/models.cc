// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/models/models.h"

#include <algorithm>

#include "planner/models/families.h"

namespace vescomm::planner {
namespace {

constexpr DeepSeek deepseek_v3 = {
    .decoder = {61, 7168, 18432, 129280}, .dense_layers = 3, .heads = 128, .experts = {256, 2048}};

constexpr DeepSeek with_prediction(DeepSeek model, std::int64_t layers) {
    model.prediction_layers = layers;
    return model;
}

// Arguments of Decoder: layers, width, inner, vocabulary; of Attention: heads, key heads, head; of
// Experts: count, inner.
constexpr BuiltInModel models[] = {
    {"llama-3-8b", "8.03 G parameters, dense",
     [] {
         return make_llama({32, 4096, 14336, 128256}, {32, 8, 128});
     }},
    {"llama-3-70b", "70.6 G, dense",
     [] {
         return make_llama({80, 8192, 28672, 128256}, {64, 8, 128});
     }},
    {"llama-3.1-405b", "406 G, dense",
     [] {
         return make_llama({126, 16384, 53248, 128256}, {128, 8, 128});
     }},
    {"mixtral-8x7b", "46.7 G, 8 experts",
     [] {
         return make_mixtral({32, 4096, 14336, 32000}, {32, 8, 128}, {8, 14336});
     }},
    {"gpt-oss-20b", "20.9 G, 32 fused experts",
     [] {
         return make_gpt_oss({24, 2880, 2880, 201088}, {64, 8, 64}, {32, 2880});
     }},
    {"gpt-oss-120b", "117 G, 128 fused experts",
     [] {
         return make_gpt_oss({36, 2880, 2880, 201088}, {64, 8, 64}, {128, 2880});
     }},
    {"deepseek-v3", "671 G, 256 experts", [] { return make_deepseek(deepseek_v3); }},
    {"deepseek-v3-mtp", "683 G, with the layer that predicts a second token",
     [] { return make_deepseek(with_prediction(deepseek_v3, 1)); }},
    {"qwen3-235b-a22b", "235 G, 128 experts",
     [] {
         return make_qwen3_moe({94, 4096, 12288, 151936}, {64, 4, 128}, {128, 1536});
     }},
    {"kimi-k2", "1.03 T, 384 experts",
     [] {
         return make_deepseek({.decoder = {61, 7168, 18432, 163840},
                               .dense_layers = 1,
                               .heads = 64,
                               .experts = {384, 2048}});
     }},
};

}  // namespace

std::span<const BuiltInModel> built_in_models() {
    return models;
}

std::vector<InputTensor> make_built_in_model(std::string_view name) {
    const auto found = std::ranges::find(models, name, &BuiltInModel::name);
    if (found != std::end(models)) return found->make();
    std::string names;
    for (const BuiltInModel &model : models)
        names += (names.empty() ? "" : ", ") + std::string(model.name);
    throw InputError("there is no built-in model \"" + std::string(name) + "\"; there is: " +
                     names + "; others are read with --safetensors or --tensors");
}

}  // namespace vescomm::planner
