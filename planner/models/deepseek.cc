// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3 and its relatives. Zone: set-up.
#include "planner/models/families.h"

namespace vescomm::planner {
namespace {

// Dimensions of latent attention, equal in all models of the family.
constexpr std::int64_t query_rank = 1536;
constexpr std::int64_t key_rank = 512;
constexpr std::int64_t plain_head = 128;  // part of queries and keys without position
constexpr std::int64_t rotated_head = 64;  // part of queries and keys that carries the position
constexpr std::int64_t value_head = 128;

void add_attention(TensorList &list, const std::string &layer, std::int64_t width,
                   std::int64_t heads) {
    const std::string name = layer + ".self_attn.";
    list.add_linear(name + "q_a_proj", query_rank, width);
    list.add_norm(name + "q_a_layernorm", query_rank);
    list.add_linear(name + "q_b_proj", heads * (plain_head + rotated_head), query_rank);
    list.add_linear(name + "kv_a_proj_with_mqa", key_rank + rotated_head, width);
    list.add_norm(name + "kv_a_layernorm", key_rank);
    list.add_linear(name + "kv_b_proj", heads * (plain_head + value_head), key_rank);
    list.add_linear(name + "o_proj", width, heads * value_head);
}

void add_experts(TensorList &list, const std::string &layer, std::int64_t width,
                 const Experts &experts) {
    list.add_linear(layer + ".mlp.gate", experts.count, width);
    list.add(layer + ".mlp.gate.e_score_correction_bias", {experts.count}, VESCOMM_F32);
    for (std::int64_t i = 0; i < experts.count; ++i)
        list.add_gated(layer + ".mlp.experts." + std::to_string(i), width, experts.inner);
    list.add_gated(layer + ".mlp.shared_experts", width, experts.inner);
}

}  // namespace

std::vector<InputTensor> make_deepseek(const DeepSeek &model) {
    const std::int64_t width = model.decoder.width;
    TensorList list;
    list.add_embedding(model.decoder);
    for (std::int64_t i = 0; i < model.decoder.layers + model.prediction_layers; ++i) {
        const std::string layer = layer_name(i);
        if (i >= model.decoder.layers) {
            list.add_norm(layer + ".enorm", width);
            list.add_norm(layer + ".hnorm", width);
            list.add_linear(layer + ".eh_proj", width, 2 * width);
        }
        add_attention(list, layer, width, model.heads);
        if (i < model.dense_layers) list.add_gated(layer + ".mlp", width, model.decoder.inner);
        else add_experts(list, layer, width, model.experts);
        list.add_norm(layer + ".input_layernorm", width);
        list.add_norm(layer + ".post_attention_layernorm", width);
        if (i >= model.decoder.layers) list.add_norm(layer + ".shared_head.norm", width);
    }
    list.add_head(model.decoder);
    return list.take();
}

}  // namespace vescomm::planner
