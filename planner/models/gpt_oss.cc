// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// GPT-OSS as stored by Hugging Face in bf16: experts are transposed, [experts, inputs, outputs].
//
// Zone: set-up.
#include "planner/models/families.h"

namespace vescomm::planner {

std::vector<InputTensor> make_gpt_oss(const Decoder &decoder, const Attention &attention,
                                      const Experts &experts) {
    const std::int64_t width = decoder.width;
    const std::int64_t queries = attention.heads * attention.head;
    const std::int64_t keys = attention.key_heads * attention.head;
    TensorList list;
    list.add_embedding(decoder);
    for (std::int64_t i = 0; i < decoder.layers; ++i) {
        const std::string layer = layer_name(i);
        list.add_linear(layer + ".self_attn.q_proj", queries, width, true);
        list.add_linear(layer + ".self_attn.k_proj", keys, width, true);
        list.add_linear(layer + ".self_attn.v_proj", keys, width, true);
        list.add_linear(layer + ".self_attn.o_proj", width, queries, true);
        list.add(layer + ".self_attn.sinks", {attention.heads});
        list.add_linear(layer + ".mlp.router", experts.count, width, true);
        const std::string expert = layer + ".mlp.experts.";
        list.add(expert + "gate_up_proj", {experts.count, width, 2 * experts.inner});
        list.add(expert + "gate_up_proj_bias", {experts.count, 2 * experts.inner});
        list.add(expert + "down_proj", {experts.count, experts.inner, width});
        list.add(expert + "down_proj_bias", {experts.count, width});
        list.add_norm(layer + ".input_layernorm", width);
        list.add_norm(layer + ".post_attention_layernorm", width);
    }
    list.add_head(decoder);
    return list.take();
}

}  // namespace vescomm::planner
