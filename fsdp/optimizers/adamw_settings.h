// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The settings of AdamW, with moments in f32 or in 8 bits.
#pragma once

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

// Returns a sentence about the first wrong member, as wrong_member(), or nullptr.
inline const char *wrong_adamw_settings(const vescomm_adamw_settings_t &s) noexcept {
    constexpr const char *kind = "adamw";
    if (s.reserved != 0)
        return wrong_member(kind, "reserved", s.reserved, "0; use vescomm_adamw_settings_init()");
    if (const char *wrong = wrong_if_negative(kind, "learning_rate", s.learning_rate)) return wrong;
    if (!(s.beta1 >= 0 && s.beta1 < 1)) return wrong_member(kind, "beta1", s.beta1, "in [0, 1)");
    if (!(s.beta2 >= 0 && s.beta2 < 1)) return wrong_member(kind, "beta2", s.beta2, "in [0, 1)");
    if (const char *wrong = wrong_if_negative(kind, "epsilon", s.epsilon)) return wrong;
    return wrong_if_negative(kind, "weight_decay", s.weight_decay);
}

}  // namespace vescomm::fsdp
