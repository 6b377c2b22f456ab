// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The units of the model, forward and backward.
//
// The residual stream x and its gradient are f32 in both precisions: a bf16 sum loses terms below
// 1/256 of x, and the terms that a deep model adds are small compared to their sum. The cost is
// small: with 512 tokens, dim 256 and bf16, adding to the stream takes 11 of the 1,450 microseconds
// of half a block's forward pass.
//
// A block keeps x before each half, qkv, the output of attention and the input of GELU: per token
// and dim, two f32 and eight elements. The backward pass recomputes LayerNorm and GELU from data
// that is in cache.
#include "fsdp/examples/train_gpt/network.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>
#include <vector>

#include "fsdp/examples/train_gpt/arena.h"
#include "fsdp/examples/train_gpt/attention.h"
#include "fsdp/examples/train_gpt/kernels.h"
#include "fsdp/examples/train_gpt/linear.h"

namespace train_gpt {

namespace {

// The order of describe().
enum EmbeddingTensor { token, position };
enum BlockTensor {
    norm1_weight,
    norm1_bias,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    norm2_weight,
    norm2_bias,
    up_weight,
    up_bias,
    down_weight,
    down_bias,
};
enum HeadTensor { norm_weight, norm_bias, head_weight };

template <typename Element>
class NetworkOf : public Gpt::Network {
public:
    NetworkOf(const Shape &shape, int max_sequences, bool recompute);

    void set_batch(int sequences, const std::uint8_t *inputs, const std::uint8_t *targets) override;
    void forward(int unit, std::span<const void *const> parameters) override;
    void backward(int unit, std::span<const void *const> parameters,
                  std::span<void *const> gradients, bool accumulate, float scale) override;

    double loss_sum() const override { return loss_sum_; }
    const float *logits(std::size_t token) const override {
        return logits_ + token * Shape::vocabulary;
    }
    std::size_t activation_bytes() const override { return arena_.bytes() + workspace_.bytes(); }

private:
    // Activations that a block keeps for its backward pass, [tokens][…].
    struct Saved {
        float *x;  // [dim], its input
        float *middle;  // [dim], x after attention
        Element *qkv;  // [3 dim]
        Element *attended;  // [dim]
        float *log_sum;  // [heads], see Attention
        Element *up;  // [4 dim], before GELU
    };

    // The matrix products for one number of tokens.
    struct Products {
        Linear qkv;
        Linear proj;
        Linear up;
        Linear down;
        Linear head;
    };

    // The tensors of the current unit.
    struct Tensors {
        std::span<const void *const> parameters;
        std::span<void *const> gradients;
        bool accumulate;

        const Element *operator[](int tensor) const {
            return static_cast<const Element *>(parameters[tensor]);
        }
        Element *gradient(int tensor) const { return static_cast<Element *>(gradients[tensor]); }
    };

    Products products(std::int64_t tokens);

    void forward_embedding(const Tensors &tensors);
    void forward_block(Saved &block, float *next_x, const Tensors &tensors);
    void forward_head(const Tensors &tensors);
    void backward_embedding(const Tensors &tensors);
    void backward_block(Saved &block, const Tensors &tensors);
    void backward_head(const Tensors &tensors, float scale);

    // Computes normal_ = layer_norm(x), and the statistics for normalise_backward().
    void normalise(const float *x, const Element *weight, const Element *bias);
    // Adds the gradient of x to dx_, given the gradient of normal_.
    void normalise_backward(const float *x, const Element *dnormal, int weight, int bias,
                            const Tensors &tensors);
    void bias_gradient(const Element *doutput, std::size_t outputs, int bias,
                       const Tensors &tensors);
    void write(const float *values, std::size_t count, int tensor, const Tensors &tensors);

    Shape shape_;
    const Kernels<Element> &kernels_;
    Arena arena_;
    Workspace workspace_;
    Attention<Element> attention_;
    std::map<std::int64_t, Products> products_of_tokens_;

    // The batch.
    int sequences_ = 0;
    std::size_t tokens_ = 0;
    Products *products_ = nullptr;
    std::uint8_t *inputs_;
    std::uint8_t *targets_;
    double loss_sum_ = 0;

    // Written by forward and read by backward.
    std::vector<Saved> blocks_;
    float *last_x_;  // [tokens][dim], the head's input
    float *logits_;  // [tokens][vocabulary]
    float *logits_log_sum_;  // [tokens]

    // The gradient of the residual stream, and its rounded copy for the products. In f32 both are
    // the same array.
    float *dx_;
    Element *dx_rounded_;

    // Temporaries of one unit.
    Element *normal_;  // [tokens][dim]
    Element *narrow_;  // [tokens][dim]
    Element *wide_;  // [tokens][4 dim]
    Element *dwide_;  // [tokens][4 dim], also dlogits and dqkv
    float *mean_;  // [tokens]
    float *reciprocal_;  // [tokens]
    float *sums_;  // gradients that are summed in f32
};

template <typename Element>
NetworkOf<Element>::NetworkOf(const Shape &shape, int max_sequences, bool recompute)
    : shape_(shape),
      kernels_(kernels<Element>()),
      attention_(workspace_, arena_, shape.dim, shape.heads, shape.context) {
    const std::size_t tokens = static_cast<std::size_t>(max_sequences) * shape.context;
    const std::size_t dim = shape.dim;
    inputs_ = arena_.take<std::uint8_t>(tokens);
    targets_ = arena_.take<std::uint8_t>(tokens);

    for (int layer = 0; layer < shape.layers; ++layer) {
        if (recompute && layer > 0) {
            blocks_.push_back(blocks_.front());
            blocks_.back().x = arena_.take<float>(tokens * dim);
            continue;
        }
        blocks_.push_back({
            .x = arena_.take<float>(tokens * dim),
            .middle = arena_.take<float>(tokens * dim),
            .qkv = arena_.take<Element>(tokens * 3 * dim),
            .attended = arena_.take<Element>(tokens * dim),
            .log_sum = arena_.take<float>(tokens * shape.heads),
            .up = arena_.take<Element>(tokens * 4 * dim),
        });
    }
    last_x_ = arena_.take<float>(tokens * dim);
    logits_ = arena_.take<float>(tokens * Shape::vocabulary);
    logits_log_sum_ = arena_.take<float>(tokens);

    dx_ = arena_.take<float>(tokens * dim);
    if constexpr (std::is_same_v<Element, float>) {
        dx_rounded_ = dx_;
    } else {
        dx_rounded_ = arena_.take<Element>(tokens * dim);
    }

    normal_ = arena_.take<Element>(tokens * dim);
    narrow_ = arena_.take<Element>(tokens * dim);
    wide_ = arena_.take<Element>(tokens * 4 * dim);
    dwide_ = arena_.take<Element>(tokens * std::max<std::size_t>(4 * dim, Shape::vocabulary));
    mean_ = arena_.take<float>(tokens);
    reciprocal_ = arena_.take<float>(tokens);
    sums_ = arena_.take<float>(std::max<std::size_t>(4, Shape::vocabulary + shape.context) * dim);
}

template <typename Element>
typename NetworkOf<Element>::Products NetworkOf<Element>::products(std::int64_t tokens) {
    const std::int64_t dim = shape_.dim;
    const auto linear = [&](std::int64_t inputs, std::int64_t outputs) {
        return Linear(workspace_, {tokens, inputs, outputs}, data_type<Element>, data_type<Element>,
                      true);
    };
    return {
        .qkv = linear(dim, 3 * dim),
        .proj = linear(dim, dim),
        .up = linear(dim, 4 * dim),
        .down = linear(4 * dim, dim),
        // Logits in f32, because the loss is a difference of large logits.
        .head = Linear(workspace_, {tokens, dim, Shape::vocabulary}, data_type<Element>,
                       dnnl::memory::data_type::f32, false),
    };
}

template <typename Element>
void NetworkOf<Element>::set_batch(int sequences, const std::uint8_t *inputs,
                                   const std::uint8_t *targets) {
    sequences_ = sequences;
    tokens_ = static_cast<std::size_t>(sequences) * shape_.context;
    loss_sum_ = 0;
    if (tokens_ == 0) return;
    std::memcpy(inputs_, inputs, tokens_);
    std::memcpy(targets_, targets, tokens_);
    const auto found = products_of_tokens_.find(tokens_);
    products_ = &(found != products_of_tokens_.end()
                      ? found
                      : products_of_tokens_.emplace(tokens_, products(tokens_)).first)
                     ->second;
}

template <typename Element>
void NetworkOf<Element>::forward(int unit, std::span<const void *const> parameters) {
    if (tokens_ == 0) return;
    const Tensors tensors = {parameters, {}, false};
    if (unit == 0) {
        forward_embedding(tensors);
    } else if (unit <= shape_.layers) {
        forward_block(blocks_[unit - 1], unit < shape_.layers ? blocks_[unit].x : last_x_, tensors);
    } else {
        forward_head(tensors);
    }
}

template <typename Element>
void NetworkOf<Element>::backward(int unit, std::span<const void *const> parameters,
                                  std::span<void *const> gradients, bool accumulate, float scale) {
    if (tokens_ == 0) {
        if (accumulate) return;
        const UnitDescription description = describe(shape_)[unit];
        for (std::size_t tensor = 0; tensor < gradients.size(); ++tensor) {
            std::memset(gradients[tensor], 0,
                        description.tensors[tensor].elements() * sizeof(Element));
        }
        return;
    }
    const Tensors tensors = {parameters, gradients, accumulate};
    if (unit == 0) {
        backward_embedding(tensors);
    } else if (unit <= shape_.layers) {
        backward_block(blocks_[unit - 1], tensors);
    } else {
        backward_head(tensors, scale);
    }
}

template <typename Element>
void NetworkOf<Element>::forward_embedding(const Tensors &tensors) {
    float *x = shape_.layers > 0 ? blocks_[0].x : last_x_;
    kernels_.embed(tokens_, shape_.dim, shape_.context, inputs_, tensors[token], tensors[position],
                   x);
}

template <typename Element>
void NetworkOf<Element>::forward_block(Saved &block, float *next_x, const Tensors &tensors) {
    const std::size_t dim = shape_.dim;
    normalise(block.x, tensors[norm1_weight], tensors[norm1_bias]);
    products_->qkv.forward(normal_, tensors[qkv_weight], tensors[qkv_bias], block.qkv);
    attention_.forward(sequences_, block.qkv, block.attended, block.log_sum);
    products_->proj.forward(block.attended, tensors[proj_weight], tensors[proj_bias], narrow_);
    kernels_.add(tokens_ * dim, block.x, narrow_, block.middle);

    normalise(block.middle, tensors[norm2_weight], tensors[norm2_bias]);
    products_->up.forward(normal_, tensors[up_weight], tensors[up_bias], block.up);
    kernels_.gelu(tokens_ * 4 * dim, block.up, wide_);
    products_->down.forward(wide_, tensors[down_weight], tensors[down_bias], narrow_);
    kernels_.add(tokens_ * dim, block.middle, narrow_, next_x);
}

template <typename Element>
void NetworkOf<Element>::forward_head(const Tensors &tensors) {
    normalise(last_x_, tensors[norm_weight], tensors[norm_bias]);
    products_->head.forward(normal_, tensors[head_weight], nullptr, logits_);
    loss_sum_ =
        kernels_.cross_entropy(tokens_, Shape::vocabulary, logits_, targets_, logits_log_sum_);
}

template <typename Element>
void NetworkOf<Element>::backward_head(const Tensors &tensors, float scale) {
    Element *dlogits = dwide_;
    kernels_.cross_entropy_backward(tokens_, Shape::vocabulary, scale, logits_, targets_,
                                    logits_log_sum_, dlogits);
    normalise(last_x_, tensors[norm_weight], tensors[norm_bias]);
    products_->head.backward_weight(dlogits, normal_, tensors.gradient(head_weight),
                                    tensors.accumulate);
    products_->head.backward_input(dlogits, tensors[head_weight], narrow_);
    std::memset(dx_, 0, tokens_ * shape_.dim * sizeof(float));
    normalise_backward(last_x_, narrow_, norm_weight, norm_bias, tensors);
}

template <typename Element>
void NetworkOf<Element>::backward_block(Saved &block, const Tensors &tensors) {
    const std::size_t dim = shape_.dim;

    // x += down(gelu(up(layer_norm(x))))
    bias_gradient(dx_rounded_, dim, down_bias, tensors);
    products_->down.backward_input(dx_rounded_, tensors[down_weight], dwide_);
    kernels_.gelu_backward(tokens_ * 4 * dim, block.up, dwide_, dwide_, wide_);
    products_->down.backward_weight(dx_rounded_, wide_, tensors.gradient(down_weight),
                                    tensors.accumulate);
    bias_gradient(dwide_, 4 * dim, up_bias, tensors);
    normalise(block.middle, tensors[norm2_weight], tensors[norm2_bias]);
    products_->up.backward_weight(dwide_, normal_, tensors.gradient(up_weight), tensors.accumulate);
    products_->up.backward_input(dwide_, tensors[up_weight], narrow_);
    normalise_backward(block.middle, narrow_, norm2_weight, norm2_bias, tensors);

    // x += proj(attention(layer_norm(x)))
    bias_gradient(dx_rounded_, dim, proj_bias, tensors);
    products_->proj.backward_weight(dx_rounded_, block.attended, tensors.gradient(proj_weight),
                                    tensors.accumulate);
    products_->proj.backward_input(dx_rounded_, tensors[proj_weight], narrow_);
    Element *dqkv = dwide_;
    attention_.backward(sequences_, block.qkv, block.attended, block.log_sum, narrow_, dqkv);
    bias_gradient(dqkv, 3 * dim, qkv_bias, tensors);
    normalise(block.x, tensors[norm1_weight], tensors[norm1_bias]);
    products_->qkv.backward_weight(dqkv, normal_, tensors.gradient(qkv_weight), tensors.accumulate);
    products_->qkv.backward_input(dqkv, tensors[qkv_weight], narrow_);
    normalise_backward(block.x, narrow_, norm1_weight, norm1_bias, tensors);
}

template <typename Element>
void NetworkOf<Element>::backward_embedding(const Tensors &tensors) {
    const std::size_t token_count = static_cast<std::size_t>(Shape::vocabulary) * shape_.dim;
    const std::size_t position_count = static_cast<std::size_t>(shape_.context) * shape_.dim;
    float *token_sums = sums_;
    float *position_sums = sums_ + token_count;
    std::memset(sums_, 0, (token_count + position_count) * sizeof(float));
    kernels_.embed_backward(tokens_, shape_.dim, shape_.context, inputs_, dx_, token_sums,
                            position_sums);
    write(token_sums, token_count, token, tensors);
    write(position_sums, position_count, position, tensors);
}

template <typename Element>
void NetworkOf<Element>::normalise(const float *x, const Element *weight, const Element *bias) {
    kernels_.layer_norm(tokens_, shape_.dim, x, weight, bias, normal_, mean_, reciprocal_);
}

template <typename Element>
void NetworkOf<Element>::normalise_backward(const float *x, const Element *dnormal, int weight,
                                            int bias, const Tensors &tensors) {
    const std::size_t dim = shape_.dim;
    Element *rounded = std::is_same_v<Element, float> ? nullptr : dx_rounded_;
    kernels_.layer_norm_backward(tokens_, dim, x, mean_, reciprocal_, tensors[weight], dnormal, dx_,
                                 rounded, sums_, sums_ + dim);
    write(sums_, dim, weight, tensors);
    write(sums_ + dim, dim, bias, tensors);
}

template <typename Element>
void NetworkOf<Element>::bias_gradient(const Element *doutput, std::size_t outputs, int bias,
                                       const Tensors &tensors) {
    kernels_.column_sums(tokens_, outputs, doutput, sums_);
    write(sums_, outputs, bias, tensors);
}

template <typename Element>
void NetworkOf<Element>::write(const float *values, std::size_t count, int tensor,
                               const Tensors &tensors) {
    kernels_.write(count, values, tensors.gradient(tensor), tensors.accumulate);
}

}  // namespace

std::unique_ptr<Gpt::Network> make_network(const Shape &shape, Precision precision,
                                           int max_sequences, bool recompute) {
    if (precision == Precision::f32) {
        return std::make_unique<NetworkOf<float>>(shape, max_sequences, recompute);
    }
    if (precision == Precision::f16) {
        return std::make_unique<NetworkOf<float16>>(shape, max_sequences, recompute);
    }
    return std::make_unique<NetworkOf<bfloat16>>(shape, max_sequences, recompute);
}

}  // namespace train_gpt
