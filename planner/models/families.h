// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Families of models. One function for each family makes the list of tensors from hyper-parameters,
// in the order in which the modules are declared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/input/input.h"

namespace vescomm::planner {

// Hyper-parameters that all decoders have. A decoder is an embedding, layers, a norm and a head.
struct Decoder {
    std::int64_t layers = 0;
    std::int64_t width = 0;  // hidden_size
    std::int64_t inner = 0;  // intermediate_size of dense layers
    std::int64_t vocabulary = 0;
};

// Grouped-query attention.
struct Attention {
    std::int64_t heads = 0;
    std::int64_t key_heads = 0;  // num_key_value_heads
    std::int64_t head = 0;  // elements of one head
};

struct Experts {
    std::int64_t count = 0;
    std::int64_t inner = 0;  // moe_intermediate_size
};

std::vector<InputTensor> make_llama(const Decoder &, const Attention &);
std::vector<InputTensor> make_mixtral(const Decoder &, const Attention &, const Experts &);
std::vector<InputTensor> make_qwen3_moe(const Decoder &, const Attention &, const Experts &);
// The experts of a layer are fused into one tensor. All linear layers have a bias.
std::vector<InputTensor> make_gpt_oss(const Decoder &, const Attention &, const Experts &);

// DeepSeek-V3 and Kimi-K2: latent attention, which compresses queries and keys before their heads.
struct DeepSeek {
    Decoder decoder;
    std::int64_t dense_layers = 0;  // number of first layers without experts
    std::int64_t heads = 0;
    Experts experts;
    // Layers that predict the token after the next; they share the embedding and the head.
    std::int64_t prediction_layers = 0;
};
std::vector<InputTensor> make_deepseek(const DeepSeek &);

// Collects tensors.
class TensorList {
public:
    void add(std::string name, std::vector<std::int64_t> shape, vescomm_type_t type = VESCOMM_BF16);

    // Adds name + ".weight", [outputs, inputs], and with_bias name + ".bias".
    void add_linear(const std::string &name, std::int64_t outputs, std::int64_t inputs,
                    bool with_bias = false);
    void add_norm(const std::string &name, std::int64_t width);
    // Adds gate_proj, up_proj and down_proj below `name`.
    void add_gated(const std::string &name, std::int64_t width, std::int64_t inner);

    void add_embedding(const Decoder &decoder);
    void add_head(const Decoder &decoder);  // and the norm before it

    std::vector<InputTensor> take() { return std::move(tensors_); }

private:
    std::vector<InputTensor> tensors_;
};

std::string layer_name(std::int64_t layer);  // "model.layers.0"

}  // namespace vescomm::planner
