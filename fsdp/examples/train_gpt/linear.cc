// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

#include "fsdp/examples/train_gpt/linear.h"

namespace train_gpt {

namespace {

using Type = dnnl::memory::data_type;

Operand row_major(Type type, std::int64_t columns, std::int64_t batch_stride) {
    return {type, columns, 1, batch_stride};
}

Operand transposed(Type type, std::int64_t rows, std::int64_t batch_stride) {
    return {type, 1, rows, batch_stride};
}

}  // namespace

// Measured on one core of an EPYC 9005 with weights out of cache, GFLOP/s of the batch-reduce and
// the older kernels:
//
//     tokens, inputs → outputs    forward            input gradient     weight gradient, added
//     f32   512, 256 → 768        222 221            233 231            189 218
//     f32    64, 768 → 2304       172 148            165 226            105 125
//     bf16  512, 256 → 768        438 410            426 408            353 405
//     bf16   64, 768 → 2304       341 290            300 340            152 358
//
// A weight gradient that is written, not added, behaves like the forward product. So the input
// gradient and the added weight gradient select the older kernels, as a batch of one.
Linear::Linear(Workspace &workspace, const Sizes &sizes, Type element, Type output, bool bias)
    : forward_(workspace, {.rows = sizes.tokens,
                           .columns = sizes.outputs,
                           .depth = sizes.inputs,
                           .a = row_major(element, sizes.inputs, 0),
                           .b = transposed(element, sizes.inputs, 0),
                           .c = row_major(output, sizes.outputs, 0),
                           .bias = bias}),
      backward_input_(workspace,
                      {.batch = 1,
                       .rows = sizes.tokens,
                       .columns = sizes.inputs,
                       .depth = sizes.outputs,
                       .a = row_major(element, sizes.outputs, 2 * sizes.tokens * sizes.outputs),
                       .b = row_major(element, sizes.inputs, 2 * sizes.outputs * sizes.inputs),
                       .c = row_major(element, sizes.inputs, 2 * sizes.tokens * sizes.inputs)}),
      backward_weight_(workspace, {.rows = sizes.outputs,
                                   .columns = sizes.inputs,
                                   .depth = sizes.tokens,
                                   .a = transposed(element, sizes.outputs, 0),
                                   .b = row_major(element, sizes.inputs, 0),
                                   .c = row_major(element, sizes.inputs, 0)}),
      backward_weight_add_(
          workspace, {.batch = 1,
                      .rows = sizes.outputs,
                      .columns = sizes.inputs,
                      .depth = sizes.tokens,
                      .a = transposed(element, sizes.outputs, 2 * sizes.tokens * sizes.outputs),
                      .b = row_major(element, sizes.inputs, 2 * sizes.tokens * sizes.inputs),
                      .c = row_major(element, sizes.inputs, 2 * sizes.outputs * sizes.inputs),
                      .add = true}) {}

}  // namespace train_gpt
