// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The settings of AdamW, with moments in f32 or in 8 bits.
#pragma once

#include <cmath>

#include "fsdp/adamw.h"
#include "fsdp/optimizers/settings.h"
#include "vescomm/optimizer.h"

namespace vescomm::fsdp {

inline vescomm_adamw_settings_t read_adamw_settings(const void *settings) noexcept {
    return read_settings(settings, vescomm_adamw_settings_init());
}

// The values of one step.
inline AdamWStep adamw_step(const vescomm_adamw_settings_t &s,
                            const vescomm_optimizer_run_t &run) noexcept {
    return {s.learning_rate * run.learning_rate_scale,
            s.beta1,
            s.beta2,
            s.epsilon,
            s.weight_decay,
            run.gradient_scale,
            run.step};
}

// Returns a constant sentence about the first wrong member, or nullptr. A comparison with NaN is
// false.
inline const char *wrong_member(const vescomm_adamw_settings_t &s) noexcept {
    if (s.reserved != 0) return "adamw: reserved must be 0; use vescomm_adamw_settings_init()";
    if (!(s.learning_rate >= 0 && std::isfinite(s.learning_rate)))
        return "adamw: learning_rate must be a finite number of at least 0";
    if (!(s.beta1 >= 0 && s.beta1 < 1)) return "adamw: beta1 must be in [0, 1)";
    if (!(s.beta2 >= 0 && s.beta2 < 1)) return "adamw: beta2 must be in [0, 1)";
    if (!(s.epsilon >= 0 && std::isfinite(s.epsilon)))
        return "adamw: epsilon must be a finite number of at least 0";
    if (!(s.weight_decay >= 0 && std::isfinite(s.weight_decay)))
        return "adamw: weight_decay must be a finite number of at least 0";
    return nullptr;
}

}  // namespace vescomm::fsdp
