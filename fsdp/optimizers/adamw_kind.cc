// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// AdamW as an optimizer kind; adamw.h has the formula.
#include <cstddef>

#include "fsdp/adamw.h"
#include "fsdp/optimizers/adamw_settings.h"
#include "fsdp/optimizers/settings.h"
#include "vescomm/optimizer.h"

namespace vescomm::fsdp {

namespace {

int needs(void *, const void *settings, vescomm_optimizer_needs_t *needs,
          const char **reason) noexcept {
    const char *const problem = wrong_adamw_settings(read_adamw_settings(settings));
    if (problem != nullptr) {
        *reason = problem;
        return VESCOMM_ERROR_INVALID_ARGUMENT;
    }
    static constexpr vescomm_optimizer_state_t moments[] = {
        {sizeof(vescomm_optimizer_state_t), VESCOMM_F32, "first moment", 0, 0},
        {sizeof(vescomm_optimizer_state_t), VESCOMM_F32, "second moment", 0, 0}};
    needs->state_count = 2;
    needs->states = moments;
    return VESCOMM_OK;
}

int step(void *, const void *settings, const vescomm_optimizer_run_t *run) noexcept {
    adamw(run->master, run->gradient, static_cast<float *>(run->state[0]),
          static_cast<float *>(run->state[1]), static_cast<std::size_t>(run->elements),
          adamw_step(read_adamw_settings(settings), *run));
    return VESCOMM_OK;
}

}  // namespace

}  // namespace vescomm::fsdp

const vescomm_optimizer_kind_t *vescomm_optimizer_get_adamw(void) {
    static const vescomm_adamw_settings_t defaults = vescomm_adamw_settings_init();
    static const vescomm_optimizer_kind_t kind =
        vescomm::fsdp::make_kind("adamw", defaults, vescomm::fsdp::needs, vescomm::fsdp::step);
    return &kind;
}
