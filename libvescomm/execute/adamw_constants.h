// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "execute/loops/adamw_element.h"

namespace vescomm::internal {

// Settings of one AdamW step.
struct AdamWStep {
    double learning_rate;
    double beta1;
    double beta2;
    double epsilon;
    double weight_decay;
    float gradient_scale;  // multiplies every gradient first: 1, or the factor of clipping
    std::int64_t step;  // counted from 1
};

// Returns the constants of a step, rounded as PyTorch does. Computed in double, because
// 1 - beta^step cancels.
inline vescomm_adamw adamw_constants(const AdamWStep &step) noexcept {
    const double count = static_cast<double>(step.step);
    const double correction1 = 1 - std::pow(step.beta1, count);
    const double correction2 = 1 - std::pow(step.beta2, count);
    return {
        step.gradient_scale,
        static_cast<float>(1 - step.learning_rate * step.weight_decay),
        static_cast<float>(1 - step.beta1),
        static_cast<float>(step.beta2),
        static_cast<float>(1 - step.beta2),
        static_cast<float>(std::sqrt(correction2)),
        static_cast<float>(step.epsilon),
        static_cast<float>(step.learning_rate / correction1),
    };
}

}  // namespace vescomm::internal
