// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Stochastic gradient descent as an optimizer kind; sgd.h has the formula.
#include <cmath>
#include <cstddef>

#include "fsdp/optimizers/sgd.h"
#include "fsdp/optimizers/sgd_settings.h"
#include "vescomm/optimizer.h"

namespace vescomm::fsdp {

namespace {

// Constant sentence about the first wrong member, or nullptr. A comparison with NaN is false.
const char *wrong(const vescomm_sgd_settings_t &s) noexcept {
    if (s.reserved != 0) return "sgd: reserved must be 0; use vescomm_sgd_settings_init()";
    if (!(s.learning_rate >= 0 && std::isfinite(s.learning_rate)))
        return "sgd: learning_rate must be a finite number of at least 0";
    if (!(s.momentum >= 0 && std::isfinite(s.momentum)))
        return "sgd: momentum must be a finite number of at least 0";
    if (!std::isfinite(s.dampening)) return "sgd: dampening must be a finite number";
    if (!(s.weight_decay >= 0 && std::isfinite(s.weight_decay)))
        return "sgd: weight_decay must be a finite number of at least 0";
    if (s.nesterov != 0 && (s.momentum == 0 || s.dampening != 0))
        return "sgd: nesterov needs a momentum above 0 and a dampening of 0";
    return nullptr;
}

int needs(void *, const void *settings, vescomm_optimizer_needs_t *needs,
          const char **reason) noexcept {
    const vescomm_sgd_settings_t s = read_sgd_settings(settings);
    const char *const problem = wrong(s);
    if (problem != nullptr) {
        *reason = problem;
        return VESCOMM_ERROR_INVALID_ARGUMENT;
    }
    static constexpr vescomm_optimizer_state_t momentum = {sizeof momentum, VESCOMM_F32, "momentum",
                                                           0, 0};
    needs->state_count = s.momentum != 0 ? 1 : 0;
    needs->states = &momentum;
    return VESCOMM_OK;
}

int step(void *, const void *settings, const vescomm_optimizer_run_t *run) noexcept {
    const vescomm_sgd_settings_t s = read_sgd_settings(settings);
    float *const momentum = s.momentum != 0 ? static_cast<float *>(run->state[0]) : nullptr;
    sgd(run->master, run->gradient, momentum, static_cast<std::size_t>(run->elements),
        internal::sgd_constants(sgd_settings(s, *run)));
    return VESCOMM_OK;
}

}  // namespace

}  // namespace vescomm::fsdp

const vescomm_optimizer_kind_t *vescomm_optimizer_get_sgd(void) {
    static const vescomm_sgd_settings_t defaults = vescomm_sgd_settings_init();
    static const vescomm_optimizer_kind_t kind =
        vescomm::fsdp::make_kind("sgd", defaults, vescomm::fsdp::needs, vescomm::fsdp::step);
    return &kind;
}
