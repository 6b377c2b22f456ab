// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

#include "fsdp/examples/train_gpt/attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace train_gpt {

namespace {

// Fewer rows waste fewer masked products but make oneDNN slower. Measured on whole steps with
// contexts of 128, 256 and 1024: 64 and 128 rows differ by less than the noise of 2 %; 32 rows are
// up to 5 % slower.
constexpr int block_rows = 64;

// Scores of a group and their gradient in f32: half of a second-level cache of a megabyte.
constexpr std::size_t group_bytes = 512 << 10;

int heads_in_group(int heads, int context) {
    const std::size_t bytes = 2 * sizeof(float) * context * context;
    int group = static_cast<int>(std::clamp<std::size_t>(group_bytes / bytes, 1, heads));
    while (heads % group != 0) --group;
    return group;
}

}  // namespace

template <typename Element>
Attention<Element>::Attention(Workspace &workspace, Arena &arena, int dim, int heads, int context)
    : kernels_(kernels<Element>()),
      dim_(dim),
      heads_(heads),
      context_(context),
      head_dim_(dim / heads),
      group_(heads_in_group(heads, context)),
      scale_(1.f / std::sqrt(static_cast<float>(head_dim_))) {
    for (int first = 0; first < context; first += block_rows) {
        blocks_.push_back(block(workspace, first, std::min(block_rows, context - first)));
    }

    const std::size_t matrix = static_cast<std::size_t>(context) * context;
    scores_ = arena.take<float>(group_ * matrix);
    dprobabilities_ = arena.take<float>(group_ * matrix);
    if constexpr (std::is_same_v<Element, float>) {
        probabilities_ = scores_;
        dscores_ = dprobabilities_;
    } else {
        probabilities_ = arena.take<Element>(group_ * matrix);
        dscores_ = arena.take<Element>(group_ * matrix);
    }
    dots_ = arena.take<float>(static_cast<std::size_t>(group_) * context);
}

template <typename Element>
typename Attention<Element>::Block Attention<Element>::block(Workspace &workspace, int first,
                                                             int rows) const {
    const std::int64_t group = group_;
    const std::int64_t matrix = std::int64_t{context_} * context_;
    const std::int64_t width = first + rows;
    const std::int64_t below = context_ - first;
    const auto element = data_type<Element>;
    const auto f32 = dnnl::memory::data_type::f32;

    // Q, K, V, dout and their gradients: a head's columns of a row of tokens.
    const Operand qkv = {element, 3 * dim_, 1, head_dim_};
    const Operand qkv_transposed = {element, 1, 3 * dim_, head_dim_};
    const Operand out = {element, dim_, 1, head_dim_};
    // P, dP, S and dS
    const Operand square = {element, context_, 1, matrix};
    const Operand square_transposed = {element, 1, context_, matrix};
    const Operand square_f32 = {f32, context_, 1, matrix};

    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k, const Operand &a,
                             const Operand &b, const Operand &c) {
        return Matmul(
            workspace,
            {.batch = group, .rows = m, .columns = n, .depth = k, .a = a, .b = b, .c = c});
    };
    return {
        .first = first,
        .rows = rows,
        .width = first + rows,
        .scores = product(rows, width, head_dim_, qkv, qkv_transposed, square_f32),
        .output = product(rows, head_dim_, width, square, qkv, out),
        .dprobabilities = product(rows, width, head_dim_, out, qkv_transposed, square_f32),
        .dquery = product(rows, head_dim_, width, square, qkv, qkv),
        .dkey = product(rows, head_dim_, below, square_transposed, qkv, qkv),
        .dvalue = product(rows, head_dim_, below, square_transposed, out, qkv),
    };
}

template <typename Element>
void Attention<Element>::forward(int sequences, const Element *qkv, Element *out, float *log_sum) {
    const std::size_t matrix = static_cast<std::size_t>(context_) * context_;
    for (int sequence = 0; sequence < sequences; ++sequence) {
        for (int head = 0; head < heads_; head += group_) {
            const std::size_t token = static_cast<std::size_t>(sequence) * context_;
            const Element *query = qkv + token * 3 * dim_ + head * head_dim_;
            const Element *key = query + dim_;
            const Element *value = key + dim_;
            Element *output = out + token * dim_ + head * head_dim_;
            float *sums = log_sum + (static_cast<std::size_t>(sequence) * heads_ + head) * context_;

            for (Block &block : blocks_) {
                const std::size_t row = block.first;
                block.scores(query + row * 3 * dim_, key, scores_ + row * context_);
                for (int i = 0; i < group_; ++i) {
                    const std::size_t at = i * matrix + row * context_;
                    kernels_.causal_softmax(block.rows, row, block.width, context_, scale_,
                                            scores_ + at, probabilities_ + at,
                                            sums + i * context_ + row);
                }
                block.output(probabilities_ + row * context_, value, output + row * dim_);
            }
        }
    }
}

template <typename Element>
void Attention<Element>::backward(int sequences, const Element *qkv, const Element *out,
                                  const float *log_sum, const Element *dout, Element *dqkv) {
    const std::size_t matrix = static_cast<std::size_t>(context_) * context_;
    for (int sequence = 0; sequence < sequences; ++sequence) {
        for (int head = 0; head < heads_; head += group_) {
            const std::size_t token = static_cast<std::size_t>(sequence) * context_;
            const std::size_t at_qkv = token * 3 * dim_ + head * head_dim_;
            const std::size_t at_out = token * dim_ + head * head_dim_;
            const Element *query = qkv + at_qkv;
            const Element *key = query + dim_;
            const Element *value = key + dim_;
            const Element *doutput = dout + at_out;
            Element *dquery = dqkv + at_qkv;
            Element *dkey = dquery + dim_;
            Element *dvalue = dkey + dim_;
            const float *sums =
                log_sum + (static_cast<std::size_t>(sequence) * heads_ + head) * context_;

            // Σ_key P dP of a row equals out · dout, so P and dP are not needed.
            for (int i = 0; i < group_; ++i) {
                kernels_.row_dots(context_, head_dim_, dim_, out + at_out + i * head_dim_,
                                  doutput + i * head_dim_, dots_ + i * context_);
            }
            for (Block &block : blocks_) {
                const std::size_t row = block.first;
                block.scores(query + row * 3 * dim_, key, scores_ + row * context_);
                block.dprobabilities(doutput + row * dim_, value, dprobabilities_ + row * context_);
                for (int i = 0; i < group_; ++i) {
                    const std::size_t at = i * matrix + row * context_;
                    kernels_.causal_softmax_backward(
                        block.rows, row, block.width, context_, scale_, scores_ + at,
                        dprobabilities_ + at, sums + i * context_ + row, dots_ + i * context_ + row,
                        probabilities_ + at, dscores_ + at);
                }
                block.dquery(dscores_ + row * context_, key, dquery + row * 3 * dim_);
            }
            // From the diagonal down, because only these queries see this block's keys.
            for (Block &block : blocks_) {
                const std::size_t row = block.first;
                const std::size_t diagonal = row * context_ + row;
                block.dvalue(probabilities_ + diagonal, doutput + row * dim_,
                             dvalue + row * 3 * dim_);
                block.dkey(dscores_ + diagonal, query + row * 3 * dim_, dkey + row * 3 * dim_);
            }
        }
    }
}

template class Attention<float>;
template class Attention<bfloat16>;
template class Attention<float16>;

}  // namespace train_gpt
