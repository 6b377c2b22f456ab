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

#include <cstring>
#include <map>
#include <type_traits>

#include "fsdp/examples/train_gpt/arena.h"
#include "fsdp/examples/train_gpt/attention.h"
#include "fsdp/examples/train_gpt/kernels.h"
#include "fsdp/examples/train_gpt/linear.h"
#include "fsdp/examples/train_gpt/network_memory.h"

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

    double loss_sum() const override { return batch_.loss_sum; }
    const float *logits(std::size_t token) const override {
        return memory_.head.logits + token * Shape::vocabulary;
    }
    std::size_t activation_bytes() const override { return arena_.bytes() + workspace_.bytes(); }

private:
    using Block = BlockMemory<Element>;

    // The matrix products for one number of tokens.
    struct Products {
        Linear qkv;
        Linear proj;
        Linear up;
        Linear down;
        Linear head;
    };

    struct Batch {
        int sequences = 0;
        std::size_t tokens = 0;
        Products *products = nullptr;
        double loss_sum = 0;
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
    void forward_block(Block &block, float *next_x, const Tensors &tensors);
    void forward_head(const Tensors &tensors);
    void backward_embedding(const Tensors &tensors);
    void backward_block(Block &block, const Tensors &tensors);
    void backward_head(const Tensors &tensors, float scale);

    // Computes the unit's normal = layer_norm(x), and the statistics for normalise_backward().
    void normalise(const float *x, const Element *weight, const Element *bias);
    // Adds the gradient of x to dx, given the gradient of normal.
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
    NetworkMemory<Element> memory_;
    Batch batch_;  // the current one
};

template <typename Element>
NetworkOf<Element>::NetworkOf(const Shape &shape, int max_sequences, bool recompute)
    : shape_(shape),
      kernels_(kernels<Element>()),
      attention_(workspace_, arena_, shape.dim, shape.heads, shape.context),
      memory_(arena_, shape, static_cast<std::size_t>(max_sequences) * shape.context, recompute) {}

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
    batch_.sequences = sequences;
    batch_.tokens = static_cast<std::size_t>(sequences) * shape_.context;
    batch_.loss_sum = 0;
    if (batch_.tokens == 0) return;
    std::memcpy(memory_.inputs, inputs, batch_.tokens);
    std::memcpy(memory_.targets, targets, batch_.tokens);
    const auto found = products_of_tokens_.find(batch_.tokens);
    batch_.products =
        &(found != products_of_tokens_.end()
              ? found
              : products_of_tokens_.emplace(batch_.tokens, products(batch_.tokens)).first)
             ->second;
}

template <typename Element>
void NetworkOf<Element>::forward(int unit, std::span<const void *const> parameters) {
    if (batch_.tokens == 0) return;
    const Tensors tensors = {parameters, {}, false};
    if (unit == 0) {
        forward_embedding(tensors);
    } else if (unit <= shape_.layers) {
        forward_block(memory_.blocks[unit - 1],
                      unit < shape_.layers ? memory_.blocks[unit].x : memory_.head.x, tensors);
    } else {
        forward_head(tensors);
    }
}

template <typename Element>
void NetworkOf<Element>::backward(int unit, std::span<const void *const> parameters,
                                  std::span<void *const> gradients, bool accumulate, float scale) {
    if (batch_.tokens == 0) {
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
        backward_block(memory_.blocks[unit - 1], tensors);
    } else {
        backward_head(tensors, scale);
    }
}

template <typename Element>
void NetworkOf<Element>::forward_embedding(const Tensors &tensors) {
    float *x = shape_.layers > 0 ? memory_.blocks[0].x : memory_.head.x;
    kernels_.embed(batch_.tokens, shape_.dim, shape_.context, memory_.inputs, tensors[token],
                   tensors[position], x);
}

template <typename Element>
void NetworkOf<Element>::forward_block(Block &block, float *next_x, const Tensors &tensors) {
    const std::size_t dim = shape_.dim;
    normalise(block.x, tensors[norm1_weight], tensors[norm1_bias]);
    batch_.products->qkv.forward(memory_.unit.normal, tensors[qkv_weight], tensors[qkv_bias],
                                 block.qkv);
    attention_.forward(batch_.sequences, block.qkv, block.attended, block.log_sum);
    batch_.products->proj.forward(block.attended, tensors[proj_weight], tensors[proj_bias],
                                  memory_.unit.narrow);
    kernels_.add(batch_.tokens * dim, block.x, memory_.unit.narrow, block.middle);

    normalise(block.middle, tensors[norm2_weight], tensors[norm2_bias]);
    batch_.products->up.forward(memory_.unit.normal, tensors[up_weight], tensors[up_bias],
                                block.up);
    kernels_.gelu(batch_.tokens * 4 * dim, block.up, memory_.unit.wide);
    batch_.products->down.forward(memory_.unit.wide, tensors[down_weight], tensors[down_bias],
                                  memory_.unit.narrow);
    kernels_.add(batch_.tokens * dim, block.middle, memory_.unit.narrow, next_x);
}

template <typename Element>
void NetworkOf<Element>::forward_head(const Tensors &tensors) {
    normalise(memory_.head.x, tensors[norm_weight], tensors[norm_bias]);
    batch_.products->head.forward(memory_.unit.normal, tensors[head_weight], nullptr,
                                  memory_.head.logits);
    batch_.loss_sum = kernels_.cross_entropy(batch_.tokens, Shape::vocabulary, memory_.head.logits,
                                             memory_.targets, memory_.head.log_sum);
}

template <typename Element>
void NetworkOf<Element>::backward_head(const Tensors &tensors, float scale) {
    Element *dlogits = memory_.unit.dwide;
    kernels_.cross_entropy_backward(batch_.tokens, Shape::vocabulary, scale, memory_.head.logits,
                                    memory_.targets, memory_.head.log_sum, dlogits);
    normalise(memory_.head.x, tensors[norm_weight], tensors[norm_bias]);
    batch_.products->head.backward_weight(dlogits, memory_.unit.normal,
                                          tensors.gradient(head_weight), tensors.accumulate);
    batch_.products->head.backward_input(dlogits, tensors[head_weight], memory_.unit.narrow);
    std::memset(memory_.dx, 0, batch_.tokens * shape_.dim * sizeof(float));
    normalise_backward(memory_.head.x, memory_.unit.narrow, norm_weight, norm_bias, tensors);
}

template <typename Element>
void NetworkOf<Element>::backward_block(Block &block, const Tensors &tensors) {
    const std::size_t dim = shape_.dim;

    // x += down(gelu(up(layer_norm(x))))
    bias_gradient(memory_.dx_rounded, dim, down_bias, tensors);
    batch_.products->down.backward_input(memory_.dx_rounded, tensors[down_weight],
                                         memory_.unit.dwide);
    kernels_.gelu_backward(batch_.tokens * 4 * dim, block.up, memory_.unit.dwide,
                           memory_.unit.dwide, memory_.unit.wide);
    batch_.products->down.backward_weight(memory_.dx_rounded, memory_.unit.wide,
                                          tensors.gradient(down_weight), tensors.accumulate);
    bias_gradient(memory_.unit.dwide, 4 * dim, up_bias, tensors);
    normalise(block.middle, tensors[norm2_weight], tensors[norm2_bias]);
    batch_.products->up.backward_weight(memory_.unit.dwide, memory_.unit.normal,
                                        tensors.gradient(up_weight), tensors.accumulate);
    batch_.products->up.backward_input(memory_.unit.dwide, tensors[up_weight], memory_.unit.narrow);
    normalise_backward(block.middle, memory_.unit.narrow, norm2_weight, norm2_bias, tensors);

    // x += proj(attention(layer_norm(x)))
    bias_gradient(memory_.dx_rounded, dim, proj_bias, tensors);
    batch_.products->proj.backward_weight(memory_.dx_rounded, block.attended,
                                          tensors.gradient(proj_weight), tensors.accumulate);
    batch_.products->proj.backward_input(memory_.dx_rounded, tensors[proj_weight],
                                         memory_.unit.narrow);
    Element *dqkv = memory_.unit.dwide;
    attention_.backward(batch_.sequences, block.qkv, block.attended, block.log_sum,
                        memory_.unit.narrow, dqkv);
    bias_gradient(dqkv, 3 * dim, qkv_bias, tensors);
    normalise(block.x, tensors[norm1_weight], tensors[norm1_bias]);
    batch_.products->qkv.backward_weight(dqkv, memory_.unit.normal, tensors.gradient(qkv_weight),
                                         tensors.accumulate);
    batch_.products->qkv.backward_input(dqkv, tensors[qkv_weight], memory_.unit.narrow);
    normalise_backward(block.x, memory_.unit.narrow, norm1_weight, norm1_bias, tensors);
}

template <typename Element>
void NetworkOf<Element>::backward_embedding(const Tensors &tensors) {
    const std::size_t token_count = static_cast<std::size_t>(Shape::vocabulary) * shape_.dim;
    const std::size_t position_count = static_cast<std::size_t>(shape_.context) * shape_.dim;
    float *token_sums = memory_.unit.sums;
    float *position_sums = memory_.unit.sums + token_count;
    std::memset(memory_.unit.sums, 0, (token_count + position_count) * sizeof(float));
    kernels_.embed_backward(batch_.tokens, shape_.dim, shape_.context, memory_.inputs, memory_.dx,
                            token_sums, position_sums);
    write(token_sums, token_count, token, tensors);
    write(position_sums, position_count, position, tensors);
}

template <typename Element>
void NetworkOf<Element>::normalise(const float *x, const Element *weight, const Element *bias) {
    kernels_.layer_norm(batch_.tokens, shape_.dim, x, weight, bias, memory_.unit.normal,
                        memory_.unit.mean, memory_.unit.reciprocal);
}

template <typename Element>
void NetworkOf<Element>::normalise_backward(const float *x, const Element *dnormal, int weight,
                                            int bias, const Tensors &tensors) {
    const std::size_t dim = shape_.dim;
    Element *rounded = std::is_same_v<Element, float> ? nullptr : memory_.dx_rounded;
    kernels_.layer_norm_backward(batch_.tokens, dim, x, memory_.unit.mean, memory_.unit.reciprocal,
                                 tensors[weight], dnormal, memory_.dx, rounded, memory_.unit.sums,
                                 memory_.unit.sums + dim);
    write(memory_.unit.sums, dim, weight, tensors);
    write(memory_.unit.sums + dim, dim, bias, tensors);
}

template <typename Element>
void NetworkOf<Element>::bias_gradient(const Element *doutput, std::size_t outputs, int bias,
                                       const Tensors &tensors) {
    kernels_.column_sums(batch_.tokens, outputs, doutput, memory_.unit.sums);
    write(memory_.unit.sums, outputs, bias, tensors);
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
