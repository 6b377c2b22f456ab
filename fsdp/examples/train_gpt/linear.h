// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// y = x Wᵀ + b for a fixed number of tokens, and the two products of its backward pass.
#pragma once

#include <cstdint>

#include "fsdp/examples/train_gpt/matmul.h"

namespace train_gpt {

class Linear {
public:
    struct Sizes {
        std::int64_t tokens;
        std::int64_t inputs;
        std::int64_t outputs;
    };

    // element: type of all operands except y, which has the type `output`.
    Linear(Workspace &workspace, const Sizes &sizes, dnnl::memory::data_type element,
           dnnl::memory::data_type output, bool bias);

    // y [tokens, outputs] = x [tokens, inputs] Wᵀ [inputs, outputs] + b
    void forward(const void *x, const void *weight, const void *bias, void *y) {
        forward_(x, weight, y, bias);
    }

    // dx [tokens, inputs] = dy [tokens, outputs] W [outputs, inputs]
    void backward_input(const void *dy, const void *weight, void *dx) {
        backward_input_(dy, weight, dx);
    }

    // dW [outputs, inputs] = dyᵀ [outputs, tokens] x [tokens, inputs]; with accumulate, dW += it.
    void backward_weight(const void *dy, const void *x, void *dweight, bool accumulate) {
        (accumulate ? backward_weight_add_ : backward_weight_)(dy, x, dweight);
    }

private:
    Matmul forward_;
    Matmul backward_input_;
    Matmul backward_weight_;
    Matmul backward_weight_add_;
};

}  // namespace train_gpt
