// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops over elements: all computations of the model except matrix products.
//
// They are compiled once for every instruction set (kernels_*.cc), and the best one for the
// processor is chosen at run time, so the build needs no special flags. Sums are computed in f32.
// Zone: per byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fsdp/examples/train_gpt/bfloat16.h"
#include "fsdp/examples/train_gpt/float16.h"

namespace train_gpt {

// Matrices are row-major and dense unless a stride is given. Any size and alignment is allowed.
// Operands must not overlap, unless a comment allows the same array.
template <typename Element>
struct Kernels {
    // sum = x + delta; sum may be x.
    void (*add)(std::size_t count, const float *x, const Element *delta, float *sum);

    // out = values, or out += values, rounded. For gradients that were summed in f32.
    void (*write)(std::size_t count, const float *values, Element *out, bool accumulate);

    // out = values, exactly.
    void (*read)(std::size_t count, const Element *values, float *out);

    // x[row] = token[inputs[row]] + position[row mod context]
    void (*embed)(std::size_t rows, std::size_t columns, std::size_t context,
                  const std::uint8_t *inputs, const Element *token, const Element *position,
                  float *x);

    // token[inputs[row]] += dx[row]; position[row mod context] += dx[row]
    void (*embed_backward)(std::size_t rows, std::size_t columns, std::size_t context,
                           const std::uint8_t *inputs, const float *dx, float *token,
                           float *position);

    // sums[column] = Σ_row matrix[row][column]
    void (*column_sums)(std::size_t rows, std::size_t columns, const Element *matrix, float *sums);

    // y = (x - mean) * reciprocal * weight + bias, reciprocal = 1 / √(variance + 1e-5) of the row
    void (*layer_norm)(std::size_t rows, std::size_t columns, const float *x, const Element *weight,
                       const Element *bias, Element *y, float *mean, float *reciprocal);

    // dx += the gradient of x; dweight, dbias = the sums over the rows; rounded = dx unless rounded
    // is null.
    void (*layer_norm_backward)(std::size_t rows, std::size_t columns, const float *x,
                                const float *mean, const float *reciprocal, const Element *weight,
                                const Element *dy, float *dx, Element *rounded, float *dweight,
                                float *dbias);

    // y = gelu(x), tanh approximation
    void (*gelu)(std::size_t count, const Element *x, Element *y);

    // dx = dy * gelu'(x), y = gelu(x); dx may be dy.
    void (*gelu_backward)(std::size_t count, const Element *x, const Element *dy, Element *dx,
                          Element *y);

    // One block of rows of one head's causal attention. Row r sees the first `first + r + 1` of
    // `width` keys; its other probabilities are 0. All matrices have the row stride `stride`.
    //
    // probabilities = softmax(scale * scores); may be the memory of scores.
    // log_sum[r] = log Σ exp(scale * scores)
    void (*causal_softmax)(std::size_t rows, std::size_t first, std::size_t width,
                           std::size_t stride, float scale, const float *scores,
                           Element *probabilities, float *log_sum);

    // Recomputes the probabilities, and computes the gradient of the scores from the gradient of
    // the probabilities: dscores = scale * probabilities * (dprobabilities - dots[r]).
    // probabilities may be scores, and dscores may be dprobabilities.
    void (*causal_softmax_backward)(std::size_t rows, std::size_t first, std::size_t width,
                                    std::size_t stride, float scale, const float *scores,
                                    const float *dprobabilities, const float *log_sum,
                                    const float *dots, Element *probabilities, Element *dscores);

    // dots[row] = Σ_column a[row][column] * b[row][column]; both matrices have the row stride
    // `stride`.
    void (*row_dots)(std::size_t rows, std::size_t columns, std::size_t stride, const Element *a,
                     const Element *b, float *dots);

    // Returns Σ_row log_sum[row] - logits[row][targets[row]]; log_sum = log Σ exp(logits).
    double (*cross_entropy)(std::size_t rows, std::size_t columns, const float *logits,
                            const std::uint8_t *targets, float *log_sum);

    // dlogits = scale * (softmax(logits) - one_hot(target))
    void (*cross_entropy_backward)(std::size_t rows, std::size_t columns, float scale,
                                   const float *logits, const std::uint8_t *targets,
                                   const float *log_sum, Element *dlogits);
};

struct KernelSet {
    Kernels<float> f32;
    Kernels<bfloat16> bf16;
    Kernels<float16> f16;
};

// Returns the kernels that this processor supports, in the order of isa_names in execute/isa.h: the
// best is last.
std::span<const KernelSet *const> supported_kernels();

// Returns the best kernels that this processor supports.
template <typename Element>
const Kernels<Element> &kernels();

}  // namespace train_gpt
