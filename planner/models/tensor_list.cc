// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Parts shared by the families. Zone: set-up.
#include "planner/models/families.h"

namespace vescomm::planner {

void TensorList::add(std::string name, std::vector<std::int64_t> shape, vescomm_type_t type) {
    InputTensor tensor;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.type = type;
    tensors_.push_back(std::move(tensor));
}

void TensorList::add_linear(const std::string &name, std::int64_t outputs, std::int64_t inputs,
                            bool with_bias) {
    add(name + ".weight", {outputs, inputs});
    if (with_bias) add(name + ".bias", {outputs});
}

void TensorList::add_norm(const std::string &name, std::int64_t width) {
    add(name + ".weight", {width});
}

void TensorList::add_gated(const std::string &name, std::int64_t width, std::int64_t inner) {
    add_linear(name + ".gate_proj", inner, width);
    add_linear(name + ".up_proj", inner, width);
    add_linear(name + ".down_proj", width, inner);
}

void TensorList::add_embedding(const Decoder &decoder) {
    add_linear("model.embed_tokens", decoder.vocabulary, decoder.width);
}

void TensorList::add_head(const Decoder &decoder) {
    add_norm("model.norm", decoder.width);
    add_linear("lm_head", decoder.vocabulary, decoder.width);
}

std::string layer_name(std::int64_t layer) {
    return "model.layers." + std::to_string(layer);
}

}  // namespace vescomm::planner
