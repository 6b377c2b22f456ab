// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/elements.h"
#include "execute/loops/sgd_step.h"

// Stochastic gradient descent on one element, for the loops of fsdp/optimizers and for the kernels
// of gpu/kernels. fsdp/optimizers/sgd.h has the formula.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

VESCOMM_INLINE float sgd_gradient(float g, float p, const SgdStep &step) {
    const float scaled = g * step.gradient_scale;
    // Without decay an infinite parameter must not make the gradient NaN.
    return step.coupled_decay != 0 ? scaled + step.coupled_decay * p : scaled;
}

VESCOMM_INLINE void sgd_with_momentum(bool nesterov, float *p, float g, float *m,
                                      const SgdStep &step) {
    const float gradient = sgd_gradient(g, *p, step);
    const float mean = step.momentum * *m + step.fresh * gradient;
    const float change = nesterov ? gradient + step.momentum * mean : mean;
    *m = canonical(mean);
    *p = canonical(*p * step.decay - step.learning_rate * change);
}

VESCOMM_INLINE void sgd_without_momentum(float *p, float g, const SgdStep &step) {
    const float gradient = sgd_gradient(g, *p, step);
    *p = canonical(*p * step.decay - step.learning_rate * gradient);
}

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
