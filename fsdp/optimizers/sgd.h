// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "execute/loops/sgd_step.h"

namespace vescomm::fsdp {

using internal::SgdStep;

// Makes one step of stochastic gradient descent on n elements: parameters p, gradients g, and the
// momentum m, which is nullptr if there is none.
//
//     g  = gradient_scale * g + coupled_decay * p
//     p *= decay
//     m  = momentum * m + fresh * g
//     p -= learning_rate * (nesterov ? g + momentum * m : m)          without momentum: g
//
// This is the order of operations of torch.optim.SGD; decoupled weight decay is an addition. The
// result of an element depends only on that element, to the last bit, and not on the instruction
// set, the alignment or the index. A NaN result is always the positive quiet NaN.
//
// The arrays must not overlap. g is not modified.
void sgd(float *p, const float *g, float *m, std::size_t n, const SgdStep &step) noexcept;

// Variant for tests that uses the instruction set isa_names[isa]; isa is below supported_isas().
void sgd(float *p, const float *g, float *m, std::size_t n, const SgdStep &step, int isa) noexcept;

using SgdLoop = void(float *p, const float *g, float *m, std::size_t n,
                     const SgdStep &step) noexcept;
namespace baseline {
SgdLoop sgd;
}
#if defined(__x86_64__)
namespace x86_64_v3 {
SgdLoop sgd;
}
namespace x86_64_v4 {
SgdLoop sgd;
}
#endif

}  // namespace vescomm::fsdp
