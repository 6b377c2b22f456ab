// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops of sgd.h. Zone: per byte.
#include "execute/loops/elements.h"
#include "fsdp/optimizers/sgd.h"

namespace vescomm::fsdp::VESCOMM_ISA {
namespace {

using internal::VESCOMM_ISA::canonical;

VESCOMM_INLINE float gradient_of(float g, float p, const SgdStep &step) {
    const float scaled = g * step.gradient_scale;
    // Without decay an infinite parameter must not make the gradient NaN.
    return step.coupled_decay != 0 ? scaled + step.coupled_decay * p : scaled;
}

VESCOMM_INLINE void with_momentum(bool nesterov, float *__restrict__ p, const float *__restrict__ g,
                                  float *__restrict__ m, std::size_t n, const SgdStep step) {
    for (std::size_t i = 0; i < n; ++i) {
        const float gradient = gradient_of(g[i], p[i], step);
        const float mean = step.momentum * m[i] + step.fresh * gradient;
        const float change = nesterov ? gradient + step.momentum * mean : mean;
        m[i] = canonical(mean);
        p[i] = canonical(p[i] * step.decay - step.learning_rate * change);
    }
}

VESCOMM_INLINE void without_momentum(float *__restrict__ p, const float *__restrict__ g,
                                     std::size_t n, const SgdStep step) {
    for (std::size_t i = 0; i < n; ++i) {
        const float gradient = gradient_of(g[i], p[i], step);
        p[i] = canonical(p[i] * step.decay - step.learning_rate * gradient);
    }
}

}  // namespace

void sgd(float *p, const float *g, float *m, std::size_t n, const SgdStep &step) noexcept {
    if (m == nullptr) {
        without_momentum(p, g, n, step);
    } else if (step.nesterov) {
        with_momentum(true, p, g, m, n, step);
    } else {
        with_momentum(false, p, g, m, n, step);
    }
}

}  // namespace vescomm::fsdp::VESCOMM_ISA
