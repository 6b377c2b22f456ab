// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Causal self-attention, softmax(Q Kᵀ / √head_dim) V, directly on the fused qkv matrix.
//
//     keys ─►        The rows of queries are cut into blocks. A block's products end at its last
//     ■              key, so most masked scores are never computed: 1/2 + 1/(2 blocks) of the full
//     ■■             products remain.
//     ■■■
//
// The probabilities are not kept for the backward pass. They are recomputed from one number per row
// (Dao et al., "FlashAttention", arXiv:2205.14135, section 3.1). This costs a seventh more in
// products here and saves memory that grows with context². The probabilities of only a few heads
// exist at a time, in the second-level cache.
#pragma once

#include <cstddef>
#include <vector>

#include "fsdp/examples/train_gpt/arena.h"
#include "fsdp/examples/train_gpt/kernels.h"
#include "fsdp/examples/train_gpt/matmul.h"

namespace train_gpt {

template <typename Element>
class Attention {
public:
    Attention(Workspace &workspace, Arena &arena, int dim, int heads, int context);

    // Computes out [sequences * context][dim] from qkv [sequences * context][3 dim], and
    // log_sum [sequences][heads][context] for the backward pass.
    void forward(int sequences, const Element *qkv, Element *out, float *log_sum);

    // Computes dqkv, the gradient of qkv, from the operands of forward() and dout.
    void backward(int sequences, const Element *qkv, const Element *out, const float *log_sum,
                  const Element *dout, Element *dqkv);

private:
    struct Block {
        int first;  // first query, and first key of the transposed products
        int rows;
        int width;  // keys visible to the last row
        Matmul scores;  // Q Kᵀ
        Matmul output;  // P V
        Matmul dprobabilities;  // dout Vᵀ
        Matmul dquery;  // dS K
        Matmul dkey;  // dSᵀ Q
        Matmul dvalue;  // Pᵀ dout
    };

    Block block(Workspace &workspace, int first, int rows) const;

    const Kernels<Element> &kernels_;
    int dim_;
    int heads_;
    int context_;
    int head_dim_;
    int group_;  // heads computed together, a divisor of heads
    float scale_;
    std::vector<Block> blocks_;

    // [group][context][context]. In f32 the probabilities overwrite the scores, and the gradient of
    // the scores overwrites the gradient of the probabilities.
    float *scores_;
    float *dprobabilities_;
    Element *probabilities_;
    Element *dscores_;
    float *dots_;  // [group][context]
};

}  // namespace train_gpt
