// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {

// SGD that calls a function before each run.
struct ObservedSgd {
    ObservedSgd() {
        kind = *vescomm_optimizer_get_sgd();
        kind.name = "observed sgd";
        kind.context = this;
        kind.needs = [](void *, const void *settings, vescomm_optimizer_needs_t *needs,
                        const char **reason) {
            const vescomm_optimizer_kind_t &sgd = *vescomm_optimizer_get_sgd();
            return sgd.needs(sgd.context, settings, needs, reason);
        };
        kind.step = [](void *context, const void *settings, const vescomm_optimizer_run_t *run) {
            const auto &self = *static_cast<ObservedSgd *>(context);
            const int result = self.before ? self.before(*run) : 0;
            const vescomm_optimizer_kind_t &sgd = *vescomm_optimizer_get_sgd();
            return result != 0 ? result : sgd.step(sgd.context, settings, run);
        };
    }
    ObservedSgd(const ObservedSgd &) = delete;
    ObservedSgd &operator=(const ObservedSgd &) = delete;

    // Adds a group of all parameters.
    void add_to(Described &described,
                const vescomm_sgd_settings_t &settings = vescomm_sgd_settings_init()) const {
        described.spec.add_group(all_ids(described), &kind, &settings);
    }

    vescomm_optimizer_kind_t kind;
    std::function<int(const vescomm_optimizer_run_t &)> before;  // returns 0, or fails the step
};

}  // namespace vescomm::fsdp::testing
