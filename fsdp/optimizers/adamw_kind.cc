// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// AdamW as an optimizer kind; adamw.h has the formula.
#include <cmath>
#include <cstddef>

#include "fsdp/adamw.h"
#include "fsdp/optimizers/settings.h"
#include "vescomm/optimizer.h"

namespace vescomm::fsdp {

namespace {

vescomm_adamw_settings_t read(const void *settings) noexcept {
    return read_settings(settings, vescomm_adamw_settings_init());
}

// Constant sentence about the first wrong member, or nullptr. A comparison with NaN is false.
const char *wrong(const vescomm_adamw_settings_t &s) noexcept {
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

int needs(void *, const void *settings, vescomm_optimizer_needs_t *needs,
          const char **reason) noexcept {
    const char *const problem = wrong(read(settings));
    if (problem != nullptr) {
        *reason = problem;
        return VESCOMM_ERROR_INVALID_ARGUMENT;
    }
    static constexpr vescomm_optimizer_state_t moments[] = {
        {sizeof(vescomm_optimizer_state_t), VESCOMM_F32, "first moment"},
        {sizeof(vescomm_optimizer_state_t), VESCOMM_F32, "second moment"}};
    needs->state_count = 2;
    needs->states = moments;
    return VESCOMM_OK;
}

int step(void *, const void *settings, const vescomm_optimizer_run_t *run) noexcept {
    const vescomm_adamw_settings_t s = read(settings);
    adamw(run->master, run->gradient, static_cast<float *>(run->state[0]),
          static_cast<float *>(run->state[1]), static_cast<std::size_t>(run->elements),
          {s.learning_rate * run->learning_rate_scale, s.beta1, s.beta2, s.epsilon, s.weight_decay,
           run->gradient_scale, run->step});
    return VESCOMM_OK;
}

}  // namespace

}  // namespace vescomm::fsdp

const vescomm_optimizer_kind_t *vescomm_optimizer_get_adamw(void) {
    static const vescomm_adamw_settings_t defaults = vescomm_adamw_settings_init();
    static const vescomm_optimizer_kind_t kind = {
        sizeof kind,         sizeof defaults, "adamw", nullptr, vescomm::fsdp::needs,
        vescomm::fsdp::step, &defaults,       1,       0,
    };
    return &kind;
}
