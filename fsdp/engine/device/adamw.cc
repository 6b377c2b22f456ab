// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/adamw.h"

#include "fsdp/optimizers/settings.h"
#include "vescomm/gpu_kernels.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp::device {

// A copy of the kind, such as one with another name, has the same functions.
bool has_kernel(const Group &group) {
    return group.kind.step == vescomm_optimizer_get_adamw()->step;
}

void update(const Group &group, const vescomm_optimizer_run_t &run, Streams &streams) {
    const auto settings = read_settings(static_cast<const void *>(group.settings.data()),
                                        vescomm_adamw_settings_init());
    vescomm_gpu_adamw_options_t options = vescomm_gpu_adamw_options_init();
    options.gradient_scale = run.gradient_scale;
    options.learning_rate = settings.learning_rate * run.learning_rate_scale;
    options.beta1 = settings.beta1;
    options.beta2 = settings.beta2;
    options.epsilon = settings.epsilon;
    options.weight_decay = settings.weight_decay;
    options.step = run.step;
    const vescomm_gpu_piece_t all = {0, 0, run.elements};
    check(vescomm_gpu_adamw(run.master, run.gradient, static_cast<float *>(run.state[0]),
                            static_cast<float *>(run.state[1]), &options, nullptr, &all, 1,
                            streams.reduce()));
    streams.write_masters();
}

}  // namespace vescomm::fsdp::device
