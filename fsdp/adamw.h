// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "execute/adamw_constants.h"

namespace vescomm::fsdp {

using internal::adamw_constants;
using internal::AdamWStep;

// Makes one AdamW step on n elements: parameters p, gradients g, and the moments m and v.
//
//     g  = gradient_scale * g
//     p *= 1 - learning_rate * weight_decay
//     m += (1 - beta1) * (g - m)
//     v  = beta2 * v + (1 - beta2) * g * g
//     p -= learning_rate / c1 * m / (sqrt(v) / sqrt(c2) + epsilon),   c = 1 - beta^step
//
// This is the order of operations of PyTorch's fused AdamW. The result of an element depends only
// on that element, to the last bit, and not on the instruction set, the alignment or the index. So
// the parameters do not depend on the cuts between ranks. A NaN result is always the positive quiet
// NaN.
//
// The arrays must not overlap. g is not modified.
void adamw(float *p, const float *g, float *m, float *v, std::size_t n,
           const AdamWStep &step) noexcept;

// Variant for tests that uses the instruction set isa_names[isa]; isa is below supported_isas().
void adamw(float *p, const float *g, float *m, float *v, std::size_t n, const AdamWStep &step,
           int isa) noexcept;

}  // namespace vescomm::fsdp
