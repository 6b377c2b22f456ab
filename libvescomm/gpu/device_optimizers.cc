// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "base/types.h"
#include "gpu/kernel_arguments.h"
#include "gpu/launch_pieces.h"

// The steps of optimizers, of device_kernels.h.
namespace vescomm::internal::device {
namespace {

// `end`: 1 or infinity.
void check_range(const char *function, const char *name, double value, double end = INFINITY) {
    if (!(value >= 0 && value < end))
        refuse(function, std::string(name) + " is " + std::to_string(value) +
                             "; it must be 0 or more, and " + (end == 1 ? "below 1" : "finite"));
}

void check_number(const char *function, std::int64_t step) {
    if (step < 1) refuse(function, "step is " + std::to_string(step) + "; steps count from 1");
}

void check_step(const char *function, const AdamWStep &step) {
    check_range(function, "learning_rate", step.learning_rate);
    check_range(function, "beta1", step.beta1, 1);
    check_range(function, "beta2", step.beta2, 1);
    check_range(function, "epsilon", step.epsilon);
    check_range(function, "weight_decay", step.weight_decay);
    check_number(function, step.step);
}

void check_step(const char *function, const SgdSettings &step) {
    check_range(function, "learning_rate", step.learning_rate);
    check_range(function, "momentum", step.momentum);
    check_finite(function, "dampening", step.dampening);
    check_range(function, "weight_decay", step.weight_decay);
    if (step.nesterov && (step.momentum == 0 || step.dampening != 0))
        refuse(function, "nesterov needs a momentum above 0 and a dampening of 0");
    check_number(function, step.step);
}

// Checks what all steps have. Returns the number of elements of all pieces; if it is not 0, the
// arrays of the optimizer must be given.
std::int64_t check_parameters(const char *function, const StepParameters &parameters,
                              const float *gradients, const vescomm_gpu_clip_t *clip,
                              Pieces pieces) {
    const vescomm_type_t type = parameters.type;
    check_small_float(function, type, "parameter_type");
    if (parameters.stochastic && type == VESCOMM_F32)
        refuse(function, "stochastic is not 0, but the parameters are f32; set it to 0");
    if (clip != nullptr) check_address(function, "clip", clip, alignof(vescomm_gpu_clip_t));
    const std::int64_t elements = checked_pieces(function, pieces, true);
    if (elements > 0) {
        check_address(function, "parameters", parameters.data, alignment_of(type));
        check_address(function, "gradients", gradients, alignof(float));
    }
    return elements;
}

gpu_kernel::Slabs slabs_of_step(const StepParameters &parameters, const float *gradients) {
    return slabs(parameters.data, parameters.type, gradients, VESCOMM_F32);
}

// Calls launch(kernel, parameters of the kernel), for parameters in f32 or in another type.
template <typename Step, typename Launch>
void with_type(const StepParameters &parameters, Kernel wide, Kernel narrow, const Step &step,
               const Launch &launch) {
    if (parameters.type == VESCOMM_F32) return launch(wide, step);
    launch(narrow, gpu_kernel::Narrow<Step>{step, parameters.random_stream, parameters.random_first,
                                            parameters.stochastic ? 1 : 0});
}

}  // namespace

void adamw(const StepParameters &parameters, const float *gradients, float *m, float *v,
           const AdamWStep &step, const vescomm_gpu_clip_t *clip, Pieces pieces,
           cuda::Stream stream) {
    const char *function = "vescomm_gpu_adamw";
    check_step(function, step);
    if (check_parameters(function, parameters, gradients, clip, pieces) > 0) {
        check_address(function, "m", m, alignof(float));
        check_address(function, "v", v, alignof(float));
    }
    const gpu_kernel::AdamW adamw{slabs_of_step(parameters, gradients), m, v, clip,
                                  adamw_constants(step)};
    with_type(
        parameters, Kernel::adamw, Kernel::adamw_narrow, adamw,
        [&](Kernel kernel, const auto &made) { launch_pieces(kernel, made, pieces, stream); });
}

void sgd(const StepParameters &parameters, const float *gradients, float *momentum,
         const SgdSettings &step, const vescomm_gpu_clip_t *clip, Pieces pieces,
         cuda::Stream stream) {
    const char *function = "vescomm_gpu_sgd";
    check_step(function, step);
    const bool has_momentum = step.momentum != 0;
    if (check_parameters(function, parameters, gradients, clip, pieces) > 0 && has_momentum)
        check_address(function, "momentum", momentum, alignof(float));
    const gpu_kernel::Sgd sgd{slabs_of_step(parameters, gradients),
                              has_momentum ? momentum : nullptr, clip, sgd_constants(step)};
    with_type(
        parameters, Kernel::sgd, Kernel::sgd_narrow, sgd,
        [&](Kernel kernel, const auto &made) { launch_pieces(kernel, made, pieces, stream); });
}

void adam8bit(const StepParameters &parameters, const float *gradients, const Moments8bit &moments,
              const AdamWStep &step, const vescomm_gpu_clip_t *clip, Pieces pieces,
              cuda::Stream stream) {
    const char *function = "vescomm_gpu_adam8bit";
    constexpr std::int64_t max_step_elements = std::int64_t{1} << 38;
    check_step(function, step);
    const std::int64_t elements = check_parameters(function, parameters, gradients, clip, pieces);
    // The kernel counts blocks of moments in 32 bits.
    if (elements > max_step_elements)
        refuse(function, "the pieces have " + std::to_string(elements) +
                             " elements; they must have at most 2^38");
    if (elements > 0) {
        check_address(function, "m", moments.m, 1);
        check_address(function, "v", moments.v, 1);
        check_address(function, "m_scales", moments.m_scales, alignof(float));
        check_address(function, "v_scales", moments.v_scales, alignof(float));
    }
    const gpu_kernel::Adam8bit adam{slabs_of_step(parameters, gradients),
                                    moments.m,
                                    moments.v,
                                    moments.m_scales,
                                    moments.v_scales,
                                    clip,
                                    adamw_constants(step)};
    const KernelLibrary &library = kernel_library();
    const auto launch = [&](Kernel kernel, auto made) {
        gpu_kernel::Adam8bit &here = step_of(made);
        divide_pieces(made, pieces, 1, gpu_kernel::moment_block, [&](std::int64_t blocks) {
            library.launch(kernel, tiles_of(blocks, gpu_kernel::moment_blocks), &made, stream);
            here.m_scales += blocks;
            here.v_scales += blocks;
        });
    };
    with_type(parameters, Kernel::adam8bit, Kernel::adam8bit_narrow, adam, launch);
}

}  // namespace vescomm::internal::device
