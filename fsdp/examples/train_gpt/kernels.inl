// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// All kernels, compiled for the instruction set that the including file has enabled. That file
// defines
//
//     TRAIN_GPT_KERNELS   the namespace
//     TRAIN_GPT_LANES     floats in a vector
//
// and includes every header before it enables the instruction set. Otherwise the linker might keep
// the copy of a header's inline function that was compiled here, and run it on a processor without
// these instructions.
//
// The kernels use no lambdas: GCC 12 ignores the pragma for a lambda inside a template and compiles
// it for the default instruction set.

namespace train_gpt::TRAIN_GPT_KERNELS {

namespace {

// clang-format off: the other files use the vectors, so this one comes first.
#include "lanes.inl"
// clang-format on

#include "cross_entropy.inl"
#include "elementwise.inl"
#include "embedding.inl"
#include "gelu.inl"
#include "layer_norm.inl"
#include "softmax.inl"

template <typename Element>
constexpr Kernels<Element> kernels_of_element = {
    .add = add<Element>,
    .write = write<Element>,
    .read = read<Element>,
    .embed = embed<Element>,
    .embed_backward = embed_backward,
    .column_sums = column_sums<Element>,
    .layer_norm = layer_norm<Element>,
    .layer_norm_backward = layer_norm_backward<Element>,
    .gelu = gelu<Element>,
    .gelu_backward = gelu_backward<Element>,
    .causal_softmax = causal_softmax<Element>,
    .causal_softmax_backward = causal_softmax_backward<Element>,
    .row_dots = row_dots<Element>,
    .cross_entropy = cross_entropy,
    .cross_entropy_backward = cross_entropy_backward<Element>,
};

}  // namespace

extern const KernelSet kernel_set;
const KernelSet kernel_set = {kernels_of_element<float>, kernels_of_element<bfloat16>,
                              kernels_of_element<float16>};

}  // namespace train_gpt::TRAIN_GPT_KERNELS
