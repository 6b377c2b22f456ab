// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/sgd_constants.h"
#include "fsdp/optimizers/settings.h"
#include "vescomm/optimizer.h"

namespace vescomm::fsdp {

inline vescomm_sgd_settings_t read_sgd_settings(const void *settings) noexcept {
    return read_settings(settings, vescomm_sgd_settings_init());
}

// The values of one step.
inline internal::SgdSettings sgd_settings(const vescomm_sgd_settings_t &s,
                                          const vescomm_optimizer_run_t &run) noexcept {
    return {s.learning_rate * run.learning_rate_scale,
            s.momentum,
            s.dampening,
            s.weight_decay,
            s.nesterov != 0,
            s.decoupled != 0,
            run.gradient_scale,
            run.step};
}

}  // namespace vescomm::fsdp
