// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/adamw.h"

#include <span>

#include "fsdp/optimizers/settings.h"
#include "vescomm/gpu_kernels.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp::device {

namespace {

vescomm_gpu_adamw_options_t options_of(const Group &group, const vescomm_optimizer_run_t &run,
                                       vescomm_type_t type) {
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
    options.parameter_type = type;
    return options;
}

void launch(const vescomm_optimizer_run_t &run, const vescomm_gpu_adamw_options_t &options,
            std::int64_t first, std::int64_t count, cuda::Stream stream) {
    const vescomm_gpu_piece_t piece = {first, first, count};
    check(vescomm_gpu_adamw(run.master, run.gradient, static_cast<float *>(run.state[0]),
                            static_cast<float *>(run.state[1]), &options, nullptr, &piece, 1,
                            stream));
}

}  // namespace

void update_by_adamw(const Group &group, const vescomm_optimizer_run_t &run,
                     const NarrowMasters &masters, Streams &streams) {
    vescomm_gpu_adamw_options_t options = options_of(group, run, masters.type());
    if (!masters.narrow()) return launch(run, options, 0, run.elements, streams.reduce());
    options.stochastic = masters.stochastic() ? 1 : 0;
    // Padding between pieces stays zero. Each parameter has random bits of its own, numbered from
    // its first element on.
    for (const vescomm_optimizer_piece_t &piece : std::span(run.pieces, run.piece_count)) {
        if (masters.stochastic()) options.random_stream = masters.stream(piece.parameter, run.step);
        options.random_first = static_cast<std::uint64_t>(piece.first - piece.offset);
        launch(run, options, piece.offset, piece.elements, streams.reduce());
    }
}

}  // namespace vescomm::fsdp::device
