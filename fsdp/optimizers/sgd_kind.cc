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

// Returns a sentence about the first wrong member, as wrong_member(), or nullptr.
const char *wrong_sgd_settings(const vescomm_sgd_settings_t &s) noexcept {
    constexpr const char *kind = "sgd";
    if (s.reserved != 0)
        return wrong_member(kind, "reserved", s.reserved, "0; use vescomm_sgd_settings_init()");
    if (const char *wrong = wrong_if_negative(kind, "learning_rate", s.learning_rate)) return wrong;
    if (const char *wrong = wrong_if_negative(kind, "momentum", s.momentum)) return wrong;
    if (!std::isfinite(s.dampening))
        return wrong_member(kind, "dampening", s.dampening, "a finite number");
    if (const char *wrong = wrong_if_negative(kind, "weight_decay", s.weight_decay)) return wrong;
    if (s.nesterov == 0) return nullptr;
    if (s.momentum == 0) return wrong_member(kind, "momentum", s.momentum, "above 0 with nesterov");
    if (s.dampening != 0) return wrong_member(kind, "dampening", s.dampening, "0 with nesterov");
    return nullptr;
}

int needs(void *, const void *settings, vescomm_optimizer_needs_t *needs,
          const char **reason) noexcept {
    const vescomm_sgd_settings_t s = read_sgd_settings(settings);
    const char *const problem = wrong_sgd_settings(s);
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
