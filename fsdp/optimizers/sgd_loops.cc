// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops of sgd.h. Zone: per byte.
#include "execute/loops/sgd_element.h"
#include "fsdp/optimizers/sgd.h"

namespace vescomm::fsdp::VESCOMM_ISA {
namespace {

using namespace internal::VESCOMM_ISA;

VESCOMM_INLINE void with_momentum(bool nesterov, float *__restrict__ p, const float *__restrict__ g,
                                  float *__restrict__ m, std::size_t n, const SgdStep step) {
    for (std::size_t i = 0; i < n; ++i) sgd_with_momentum(nesterov, p + i, g[i], m + i, step);
}

VESCOMM_INLINE void without_momentum(float *__restrict__ p, const float *__restrict__ g,
                                     std::size_t n, const SgdStep step) {
    for (std::size_t i = 0; i < n; ++i) sgd_without_momentum(p + i, g[i], step);
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
