// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/own_kinds.h"

#include <algorithm>
#include <array>
#include <span>

#include "fsdp/optimizers/adamw_settings.h"
#include "fsdp/optimizers/sgd_settings.h"
#include "fsdp/quantise/block_quantise.h"
#include "vescomm/gpu_kernels.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp::device {

namespace {

using Pieces = std::span<const vescomm_gpu_piece_t>;
using RunPieces = std::span<const vescomm_optimizer_piece_t>;

std::int64_t count(Pieces pieces) {
    return static_cast<std::int64_t>(pieces.size());
}

// Sets the type and the rounding of masters in the options of a kernel.
template <typename Options>
void set_rounding(Options &options, const NarrowMasters &masters) {
    options.parameter_type = masters.type();
    options.stochastic = masters.stochastic() ? 1 : 0;
}

// Sets the numbers of random bits of the elements of a piece in the options of a kernel: each
// parameter has bits of its own, numbered from its first element on.
template <typename Options>
void set_random_bits(Options &options, const vescomm_optimizer_run_t &run,
                     const vescomm_optimizer_piece_t &piece, const NarrowMasters &masters) {
    options.random_stream = masters.stream(piece.parameter, run.step);
    options.random_first = static_cast<std::uint64_t>(piece.first - piece.offset);
}

// Collects pieces, and calls launch(pieces) for as many as one kernel takes.
template <typename Launch>
class Batch {
public:
    explicit Batch(const Launch &launch) : launch_(launch) {}

    void add(std::int64_t first, std::int64_t elements) {
        if (count_ == pieces_.size()) launch();
        pieces_[count_++] = {first, first, elements};
    }
    void launch() {
        if (count_ > 0) launch_(Pieces(pieces_).first(count_));
        count_ = 0;
    }

private:
    const Launch &launch_;
    std::array<vescomm_gpu_piece_t, 128> pieces_;  // those of one launch, see gpu_kernels.h
    std::size_t count_ = 0;
};

// Calls launch(pieces) for the elements of a run, of which each is updated alone.
template <typename Options, typename Launch>
void update_elements(Options &options, const vescomm_optimizer_run_t &run,
                     const NarrowMasters &masters, const Launch &launch) {
    Batch batch(launch);
    set_rounding(options, masters);
    if (masters.narrow()) {
        // Padding between pieces stays zero.
        for (const vescomm_optimizer_piece_t &piece : RunPieces(run.pieces, run.piece_count)) {
            if (masters.stochastic()) {
                batch.launch();
                set_random_bits(options, run, piece, masters);
            }
            batch.add(piece.offset, piece.elements);
        }
    } else {
        batch.add(0, run.elements);
    }
    batch.launch();
}

vescomm_gpu_adamw_options_t adamw_options(const Group &group, const vescomm_optimizer_run_t &run) {
    const AdamWStep step = adamw_step(read_adamw_settings(group.settings.data()), run);
    vescomm_gpu_adamw_options_t options = vescomm_gpu_adamw_options_init();
    options.gradient_scale = step.gradient_scale;
    options.learning_rate = step.learning_rate;
    options.beta1 = step.beta1;
    options.beta2 = step.beta2;
    options.epsilon = step.epsilon;
    options.weight_decay = step.weight_decay;
    options.step = step.step;
    return options;
}

void adamw(const Group &group, const vescomm_optimizer_run_t &run, const NarrowMasters &masters,
           Streams &streams) {
    vescomm_gpu_adamw_options_t options = adamw_options(group, run);
    update_elements(options, run, masters, [&](Pieces pieces) {
        check(vescomm_gpu_adamw(run.master, run.gradient, static_cast<float *>(run.state[0]),
                                static_cast<float *>(run.state[1]), &options, nullptr,
                                pieces.data(), count(pieces), streams.reduce()));
    });
}

void sgd(const Group &group, const vescomm_optimizer_run_t &run, const NarrowMasters &masters,
         Streams &streams) {
    const internal::SgdSettings step = sgd_settings(read_sgd_settings(group.settings.data()), run);
    vescomm_gpu_sgd_options_t options = vescomm_gpu_sgd_options_init();
    options.gradient_scale = step.gradient_scale;
    options.learning_rate = step.learning_rate;
    options.momentum = step.momentum;
    options.dampening = step.dampening;
    options.weight_decay = step.weight_decay;
    options.step = step.step;
    options.nesterov = step.nesterov ? 1 : 0;
    options.decoupled = step.decoupled ? 1 : 0;
    float *const momentum = run.states > 0 ? static_cast<float *>(run.state[0]) : nullptr;
    update_elements(options, run, masters, [&](Pieces pieces) {
        check(vescomm_gpu_sgd(run.master, run.gradient, momentum, &options, nullptr, pieces.data(),
                              count(pieces), streams.reduce()));
    });
}

void adam8bit(const Group &group, const vescomm_optimizer_run_t &run, const NarrowMasters &masters,
              Streams &streams) {
    vescomm_gpu_adamw_options_t options = adamw_options(group, run);
    set_rounding(options, masters);
    std::int64_t first_block = 0, block = 0;  // of the batch, and behind it
    const auto launch = [&](Pieces pieces) {
        check(vescomm_gpu_adam8bit(run.master, run.gradient,
                                   static_cast<std::uint8_t *>(run.state[0]),
                                   static_cast<std::uint8_t *>(run.state[1]),
                                   static_cast<float *>(run.state[2]) + first_block,
                                   static_cast<float *>(run.state[3]) + first_block, &options,
                                   nullptr, pieces.data(), count(pieces), streams.reduce()));
        first_block = block;
    };
    Batch batch(launch);
    for (const vescomm_optimizer_piece_t &piece : RunPieces(run.pieces, run.piece_count)) {
        if (masters.stochastic() || block != piece.block) {
            batch.launch();
            first_block = block = piece.block;
        }
        if (masters.stochastic()) set_random_bits(options, run, piece, masters);
        // The grid of blocks restarts at each matrix, which changes nothing if blocks divide it.
        const std::int64_t matrix = piece.rows * piece.columns;
        const bool divided = matrix % VESCOMM_GPU_MOMENT_BLOCK == 0;
        for (std::int64_t done = 0; done < piece.elements;) {
            const std::int64_t left = piece.elements - done;
            const std::int64_t elements =
                divided ? left : std::min(matrix - (piece.first + done) % matrix, left);
            batch.add(piece.offset + done, elements);
            block += static_cast<std::int64_t>(
                blocks_of(static_cast<std::size_t>(elements), VESCOMM_GPU_MOMENT_BLOCK));
            done += elements;
        }
    }
    batch.launch();
}

}  // namespace

OwnUpdate *own_update(const Group &group) {
    const auto step = group.kind.step;
    if (step == vescomm_optimizer_get_adamw()->step) return adamw;
    if (step == vescomm_optimizer_get_adam8bit()->step) return adam8bit;
    if (step == vescomm_optimizer_get_sgd()->step) return sgd;
    return nullptr;
}

}  // namespace vescomm::fsdp::device
