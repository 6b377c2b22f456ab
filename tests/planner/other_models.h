// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Models of other families than the built-in ones: convolutions, recommenders, state spaces. Shapes
// follow from hyper-parameters; element counts equal those of the published implementations.
#pragma once

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "vescomm/planner_model.hpp"

namespace vescomm::planner::reference {

// Adds tensors to the unit opened last. Matrices have blocks of one row by default.
class ModelBuilder {
public:
    void unit(std::string name) { model_.units.push_back({std::move(name), VESCOMM_F32, {}}); }
    void add(const std::string &name, std::vector<std::int64_t> shape) {
        Unit &unit = model_.units.back();
        unit.tensors.push_back({unit.name + "." + name, std::move(shape)});
    }
    void add_linear(const std::string &name, std::int64_t outputs, std::int64_t inputs) {
        add(name + ".weight", {outputs, inputs});
        add(name + ".bias", {outputs});
    }
    void add_layer_norm(const std::string &name, std::int64_t width) {
        add(name + ".weight", {width});
        add(name + ".bias", {width});
    }
    // Adds a square kernel and its batch norm, including the buffers of the batch norm.
    void add_conv(const std::string &name, std::int64_t outputs, std::int64_t inputs,
                  std::int64_t kernel) {
        add(name + ".weight", {outputs, inputs, kernel, kernel});
        for (const char *part : {"weight", "bias", "running_mean", "running_var"})
            add(name + ".norm." + part, {outputs});
        add(name + ".norm.num_batches_tracked", {});
    }
    Model take() { return std::move(model_); }

private:
    Model model_;
};

inline std::string numbered(const std::string &name, std::int64_t i) {
    return name + std::to_string(i);
}

inline Model resnet_50() {
    ModelBuilder b;
    b.unit("stem");
    b.add_conv("conv", 64, 3, 7);
    std::int64_t inputs = 64;
    constexpr std::int64_t blocks[] = {3, 4, 6, 3};
    for (std::int64_t stage = 0; stage < 4; ++stage) {
        const std::int64_t width = std::int64_t{64} << stage;
        b.unit(numbered("stage", stage));
        for (std::int64_t i = 0; i < blocks[stage]; ++i) {
            const std::string block = std::to_string(i);
            b.add_conv(block + ".conv1", width, inputs, 1);
            b.add_conv(block + ".conv2", width, width, 3);
            b.add_conv(block + ".conv3", 4 * width, width, 1);
            if (i == 0) b.add_conv(block + ".downsample", 4 * width, inputs, 1);
            inputs = 4 * width;
        }
    }
    b.unit("head");
    b.add_linear("fc", 1000, inputs);
    return b.take();
}

inline void add_encoder_layer(ModelBuilder &b, std::int64_t width) {
    b.add("in_proj.weight", {3 * width, width});
    b.add("in_proj.bias", {3 * width});
    b.add_linear("out_proj", width, width);
    b.add_layer_norm("norm1", width);
    b.add_linear("up", 4 * width, width);
    b.add_linear("down", width, 4 * width);
    b.add_layer_norm("norm2", width);
}

inline Model vit_l_16() {
    ModelBuilder b;
    b.unit("patches");
    b.add("class_token", {1, 1, 1024});
    b.add("conv_proj.weight", {1024, 3, 16, 16});
    b.add("conv_proj.bias", {1024});
    b.add("pos_embedding", {1, 197, 1024});
    for (int i = 0; i < 24; ++i) {
        b.unit(numbered("layer", i));
        add_encoder_layer(b, 1024);
    }
    b.unit("head");
    b.add_layer_norm("norm", 1024);
    b.add_linear("fc", 1000, 1024);
    return b.take();
}

inline Model bert_large() {
    ModelBuilder b;
    b.unit("embedding");
    b.add("word", {30522, 1024});
    b.add("position", {512, 1024});
    b.add("type", {2, 1024});
    b.add_layer_norm("norm", 1024);
    for (int i = 0; i < 24; ++i) {
        b.unit(numbered("layer", i));
        for (const char *name : {"query", "key", "value", "output"}) b.add_linear(name, 1024, 1024);
        b.add_layer_norm("norm1", 1024);
        b.add_linear("up", 4096, 1024);
        b.add_linear("down", 1024, 4096);
        b.add_layer_norm("norm2", 1024);
    }
    b.unit("pooler");
    b.add_linear("dense", 1024, 1024);
    return b.take();
}

inline Model t5_large() {
    ModelBuilder b;
    b.unit("shared");
    b.add("weight", {32128, 1024});
    for (const bool decoder : {false, true}) {
        const std::string stack = decoder ? "decoder" : "encoder";
        for (int i = 0; i < 24; ++i) {
            b.unit(numbered(stack, i));
            for (int attention = 0; attention < (decoder ? 2 : 1); ++attention) {
                const std::string name = numbered("attention", attention);
                for (const char *part : {".q", ".k", ".v", ".o"}) b.add(name + part, {1024, 1024});
                b.add(name + ".norm", {1024});
            }
            if (i == 0) b.add("relative_attention_bias", {32, 16});
            b.add("wi", {4096, 1024});
            b.add("wo", {1024, 4096});
            b.add("norm", {1024});
        }
        b.unit(stack + ".rest");
        b.add("final_norm", {1024});
    }
    return b.take();
}

inline Model u_net() {
    ModelBuilder b;
    const auto add_double = [&b](std::int64_t outputs, std::int64_t inputs) {
        b.add_conv("conv1", outputs, inputs, 3);
        b.add_conv("conv2", outputs, outputs, 3);
    };
    b.unit("inc");
    add_double(64, 3);
    for (std::int64_t width = 128; width <= 1024; width *= 2) {
        b.unit(numbered("down", width));
        add_double(width, width / 2);
    }
    for (std::int64_t width = 512; width >= 64; width /= 2) {
        b.unit(numbered("up", width));
        b.add("transposed.weight", {2 * width, width, 2, 2});
        b.add("transposed.bias", {width});
        add_double(width, 2 * width);
    }
    b.unit("out");
    b.add("conv.weight", {2, 64, 1, 1});
    b.add("conv.bias", {2});
    return b.take();
}

// MLPerf's recommender: Criteo Terabyte, at most 40 million rows in a table.
inline Model dlrm() {
    constexpr std::int64_t rows[] = {
        39884406, 39043,    17289,    7420,     20263,  3,     7120, 1543, 63,
        38532951, 2953546,  403346,   10,       2208,   11938, 155,  4,    976,
        14,       39979771, 25641295, 39664984, 585935, 12972, 108,  36};
    ModelBuilder b;
    b.unit("tables");
    for (std::size_t i = 0; i < std::size(rows); ++i) b.add(std::to_string(i), {rows[i], 128});
    const auto add_layers = [&b](const char *name, const std::vector<std::int64_t> &widths) {
        b.unit(name);
        for (std::size_t i = 1; i < widths.size(); ++i)
            b.add_linear(std::to_string(i), widths[i], widths[i - 1]);
    };
    add_layers("bottom", {13, 512, 256, 128});
    add_layers("top", {479, 1024, 1024, 512, 256, 1});
    return b.take();
}

inline Model mamba2() {
    constexpr std::int64_t width = 2560;
    constexpr std::int64_t inner = 2 * width;
    constexpr std::int64_t heads = inner / 64;
    constexpr std::int64_t convolved = inner + 2 * 128;  // and two states
    ModelBuilder b;
    b.unit("embedding");
    b.add("weight", {50288, width});
    for (int i = 0; i < 64; ++i) {
        b.unit(numbered("layer", i));
        b.add("norm", {width});
        b.add("dt_bias", {heads});
        b.add("A_log", {heads});
        b.add("D", {heads});
        b.add("in_proj", {inner + convolved + heads, width});
        b.add("conv1d.weight", {convolved, 1, 4});
        b.add("conv1d.bias", {convolved});
        b.add("gate_norm", {inner});
        b.add("out_proj", {width, inner});
    }
    b.unit("rest");
    b.add("norm", {width});
    return b.take();
}

}  // namespace vescomm::planner::reference
