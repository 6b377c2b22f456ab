// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "execute/loops/sgd_step.h"

namespace vescomm::internal {

// Settings of one step of stochastic gradient descent.
struct SgdSettings {
    double learning_rate;
    double momentum;  // 0: none
    double dampening;  // the momentum takes 1 - dampening of a gradient, but all of the first
    double weight_decay;
    bool nesterov;
    bool decoupled;  // the weight decay is a factor of the parameter
    float gradient_scale;  // multiplies every gradient first: 1, or the factor of clipping
    std::int64_t step;  // counted from 1
};

// Returns the constants of a step.
inline SgdStep sgd_constants(const SgdSettings &s) noexcept {
    const double decoupled = s.decoupled ? s.weight_decay : 0;
    return {
        .gradient_scale = s.gradient_scale,
        .coupled_decay = static_cast<float>(s.decoupled ? 0 : s.weight_decay),
        .decay = static_cast<float>(1 - s.learning_rate * decoupled),
        .momentum = static_cast<float>(s.momentum),
        .fresh = s.step == 1 ? 1.0f : static_cast<float>(1 - s.dampening),
        .learning_rate = static_cast<float>(s.learning_rate),
        .nesterov = s.nesterov,
    };
}

}  // namespace vescomm::internal
