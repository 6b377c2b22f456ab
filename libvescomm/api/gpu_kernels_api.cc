// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <string>

#include "api/guard.h"
#include "gpu/device_kernels.h"
#include "gpu/kernel_library.h"
#include "vescomm/gpu_kernels.h"

using namespace vescomm::internal;

namespace {

cuda::Stream stream_of(void *stream) {
    return static_cast<cuda::Stream>(stream);
}

device::Pieces pieces_of(const char *function, const vescomm_gpu_piece_t *pieces,
                         std::int64_t count) {
    if (count < 0)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, std::string(function) + ": piece_count is " +
                                                        std::to_string(count) +
                                                        "; it must be 0 or more");
    if (count > 0) require(pieces, function, "pieces");
    return {pieces, static_cast<std::size_t>(count)};
}

}  // namespace

vescomm_status_t vescomm_gpu_check_kernels(void) {
    return guarded([] { kernel_library().preload(); });
}

vescomm_status_t vescomm_gpu_zero(void *target, vescomm_type_t type,
                                  const vescomm_gpu_piece_t *pieces, std::int64_t piece_count,
                                  void *stream) {
    return guarded([&] {
        device::zero(target, type, pieces_of("vescomm_gpu_zero", pieces, piece_count),
                     stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_copy(void *target, vescomm_type_t target_type, const void *source,
                                  vescomm_type_t source_type, const vescomm_gpu_piece_t *pieces,
                                  std::int64_t piece_count, void *stream) {
    return guarded([&] {
        device::copy(target, target_type, source, source_type,
                     pieces_of("vescomm_gpu_copy", pieces, piece_count), stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_add(void *target, vescomm_type_t target_type, const void *source,
                                 vescomm_type_t source_type, const vescomm_gpu_piece_t *pieces,
                                 std::int64_t piece_count, void *stream) {
    return guarded([&] {
        device::add(target, target_type, source, source_type,
                    pieces_of("vescomm_gpu_add", pieces, piece_count), stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_scale(void *target, vescomm_type_t type, double factor,
                                   const vescomm_gpu_piece_t *pieces, std::int64_t piece_count,
                                   void *stream) {
    return guarded([&] {
        device::scale(target, type, factor, pieces_of("vescomm_gpu_scale", pieces, piece_count),
                      stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_unscale(void *target, vescomm_type_t type, double factor,
                                     std::int32_t *overflow, const vescomm_gpu_piece_t *pieces,
                                     std::int64_t piece_count, void *stream) {
    return guarded([&] {
        device::unscale(target, type, factor, overflow,
                        pieces_of("vescomm_gpu_unscale", pieces, piece_count), stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_add_squares(std::int64_t *words, const void *source,
                                         vescomm_type_t type, const vescomm_gpu_piece_t *pieces,
                                         std::int64_t piece_count, void *stream) {
    return guarded([&] {
        device::add_squares(words, source, type,
                            pieces_of("vescomm_gpu_add_squares", pieces, piece_count),
                            stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_clip_factor(std::int64_t *words, double scale, double max_norm,
                                         vescomm_gpu_clip_t *result, void *stream) {
    return guarded([&] { device::clip_factor(words, scale, max_norm, result, stream_of(stream)); });
}

vescomm_status_t vescomm_gpu_quantise(void *codes, float *scales, vescomm_type_t code_type,
                                      const void *source, vescomm_type_t type, std::int64_t count,
                                      std::int64_t block, void *stream) {
    return guarded([&] {
        device::quantise(codes, scales, code_type, source, type, count, block, stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_dequantise(void *target, vescomm_type_t type, const void *codes,
                                        const float *scales, vescomm_type_t code_type,
                                        std::int64_t count, std::int64_t block, void *stream) {
    return guarded([&] {
        device::dequantise(target, type, codes, scales, code_type, count, block, stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_sum_quantised(float *target, std::int32_t add, const void *codes,
                                           std::int64_t code_stride, const float *scales,
                                           std::int64_t scale_stride, std::int32_t sources,
                                           vescomm_type_t code_type, std::int64_t count,
                                           std::int64_t block, float factor, void *stream) {
    return guarded([&] {
        if (add != 0 && add != 1)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, "vescomm_gpu_sum_quantised: add is " +
                                                            std::to_string(add) + "; use 0 or 1");
        device::sum_quantised(target, add != 0,
                              {codes, scales, code_stride, scale_stride, sources, code_type}, count,
                              block, factor, stream_of(stream));
    });
}

namespace {

// The step of vescomm_gpu_adamw() and vescomm_gpu_adam8bit().
AdamWStep step_of(const vescomm_gpu_adamw_options_t &given) {
    return {given.learning_rate, given.beta1,          given.beta2, given.epsilon,
            given.weight_decay,  given.gradient_scale, given.step};
}

template <typename Options>
device::StepParameters parameters_of(void *parameters, const Options &given) {
    const vescomm_type_t type = given.parameter_type == 0 ? VESCOMM_F32 : given.parameter_type;
    return {parameters, type, given.stochastic != 0, given.random_stream, given.random_first};
}

template <typename Options>
Options read_options(const Options *options, const char *function) {
    require(options, function, "options");
    return read_struct(options, function, "options");
}

}  // namespace

vescomm_status_t vescomm_gpu_adamw(void *parameters, const float *gradients, float *m, float *v,
                                   const vescomm_gpu_adamw_options_t *options,
                                   const vescomm_gpu_clip_t *clip,
                                   const vescomm_gpu_piece_t *pieces, std::int64_t piece_count,
                                   void *stream) {
    return guarded([&] {
        const char *function = "vescomm_gpu_adamw";
        const auto given = read_options(options, function);
        device::adamw(parameters_of(parameters, given), gradients, m, v, step_of(given), clip,
                      pieces_of(function, pieces, piece_count), stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_adam8bit(void *parameters, const float *gradients, std::uint8_t *m,
                                      std::uint8_t *v, float *m_scales, float *v_scales,
                                      const vescomm_gpu_adamw_options_t *options,
                                      const vescomm_gpu_clip_t *clip,
                                      const vescomm_gpu_piece_t *pieces, std::int64_t piece_count,
                                      void *stream) {
    return guarded([&] {
        const char *function = "vescomm_gpu_adam8bit";
        const auto given = read_options(options, function);
        device::adam8bit(parameters_of(parameters, given), gradients, {m, v, m_scales, v_scales},
                         step_of(given), clip, pieces_of(function, pieces, piece_count),
                         stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_sgd(void *parameters, const float *gradients, float *momentum,
                                 const vescomm_gpu_sgd_options_t *options,
                                 const vescomm_gpu_clip_t *clip, const vescomm_gpu_piece_t *pieces,
                                 std::int64_t piece_count, void *stream) {
    return guarded([&] {
        const char *function = "vescomm_gpu_sgd";
        const auto given = read_options(options, function);
        device::sgd(parameters_of(parameters, given), gradients, momentum,
                    {given.learning_rate, given.momentum, given.dampening, given.weight_decay,
                     given.nesterov != 0, given.decoupled != 0, given.gradient_scale, given.step},
                    clip, pieces_of(function, pieces, piece_count), stream_of(stream));
    });
}
