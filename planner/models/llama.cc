// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// LLaMA, and the models that differ from it only in the feed-forward part: Mixtral and Qwen3-MoE.
//
// Zone: set-up.
#include "planner/models/families.h"

namespace vescomm::planner {
namespace {

void add_attention(TensorList &list, const std::string &layer, std::int64_t width,
                   const Attention &attention) {
    const std::string name = layer + ".self_attn.";
    list.add_linear(name + "q_proj", attention.heads * attention.head, width);
    list.add_linear(name + "k_proj", attention.key_heads * attention.head, width);
    list.add_linear(name + "v_proj", attention.key_heads * attention.head, width);
    list.add_linear(name + "o_proj", width, attention.heads * attention.head);
}

// feed_forward(list, name of the layer) adds the tensors between attention and the norms.
template <typename FeedForward>
std::vector<InputTensor> make_decoder(const Decoder &decoder, const Attention &attention,
                                      FeedForward &&feed_forward) {
    TensorList list;
    list.add_embedding(decoder);
    for (std::int64_t i = 0; i < decoder.layers; ++i) {
        const std::string layer = layer_name(i);
        add_attention(list, layer, decoder.width, attention);
        feed_forward(list, layer);
        list.add_norm(layer + ".input_layernorm", decoder.width);
        list.add_norm(layer + ".post_attention_layernorm", decoder.width);
    }
    list.add_head(decoder);
    return list.take();
}

}  // namespace

std::vector<InputTensor> make_llama(const Decoder &decoder, const Attention &attention) {
    return make_decoder(decoder, attention, [&](TensorList &list, const std::string &layer) {
        list.add_gated(layer + ".mlp", decoder.width, decoder.inner);
    });
}

std::vector<InputTensor> make_mixtral(const Decoder &decoder, const Attention &attention,
                                      const Experts &experts) {
    return make_decoder(decoder, attention, [&](TensorList &list, const std::string &layer) {
        const std::string name = layer + ".block_sparse_moe.";
        list.add_linear(name + "gate", experts.count, decoder.width);
        for (std::int64_t i = 0; i < experts.count; ++i) {
            const std::string expert = name + "experts." + std::to_string(i);
            list.add_linear(expert + ".w1", experts.inner, decoder.width);
            list.add_linear(expert + ".w2", decoder.width, experts.inner);
            list.add_linear(expert + ".w3", experts.inner, decoder.width);
        }
    });
}

std::vector<InputTensor> make_qwen3_moe(const Decoder &decoder, const Attention &attention,
                                        const Experts &experts) {
    return make_decoder(decoder, attention, [&](TensorList &list, const std::string &layer) {
        list.add_norm(layer + ".self_attn.q_norm", attention.head);
        list.add_norm(layer + ".self_attn.k_norm", attention.head);
        list.add_linear(layer + ".mlp.gate", experts.count, decoder.width);
        for (std::int64_t i = 0; i < experts.count; ++i)
            list.add_gated(layer + ".mlp.experts." + std::to_string(i), decoder.width,
                           experts.inner);
    });
}

}  // namespace vescomm::planner
