// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "execute/adamw_constants.h"
#include "execute/sgd_constants.h"
#include "gpu/cuda_functions.h"
#include "vescomm/gpu_kernels.h"

// The calls of gpu_kernels.h: they check their arguments, and launch kernels. They throw
// INVALID_ARGUMENT before anything happens, and the errors of kernel_library().
namespace vescomm::internal::device {

using Pieces = std::span<const vescomm_gpu_piece_t>;

void zero(void *target, vescomm_type_t type, Pieces pieces, cuda::Stream stream);
void copy(void *target, vescomm_type_t target_type, const void *source, vescomm_type_t source_type,
          Pieces pieces, cuda::Stream stream);
void add(void *target, vescomm_type_t target_type, const void *source, vescomm_type_t source_type,
         Pieces pieces, cuda::Stream stream);
void scale(void *target, vescomm_type_t type, double factor, Pieces pieces, cuda::Stream stream);
void unscale(void *target, vescomm_type_t type, double factor, std::int32_t *overflow,
             Pieces pieces, cuda::Stream stream);
void add_squares(std::int64_t *words, const void *source, vescomm_type_t type, Pieces pieces,
                 cuda::Stream stream);
void clip_factor(std::int64_t *words, double scale, double max_norm, vescomm_gpu_clip_t *result,
                 cuda::Stream stream);
void quantise(void *codes, float *scales, vescomm_type_t code_type, const void *source,
              vescomm_type_t type, std::int64_t count, std::int64_t block, cuda::Stream stream);
void dequantise(void *target, vescomm_type_t type, const void *codes, const float *scales,
                vescomm_type_t code_type, std::int64_t count, std::int64_t block,
                cuda::Stream stream);

// The codes and scales of the contributions to a sum; see gpu_kernels.h.
struct QuantisedSources {
    const void *codes;
    const float *scales;
    std::int64_t code_stride, scale_stride;
    std::int32_t count;
    vescomm_type_t code_type;
};
void sum_quantised(float *target, bool add, const QuantisedSources &sources, std::int64_t count,
                   std::int64_t block, float factor, cuda::Stream stream);

// Parameters of a step, and how they are rounded.
struct StepParameters {
    void *data;
    vescomm_type_t type;
    bool stochastic;
    std::uint64_t random_stream, random_first;
};
void adamw(const StepParameters &parameters, const float *gradients, float *m, float *v,
           const AdamWStep &step, const vescomm_gpu_clip_t *clip, Pieces pieces,
           cuda::Stream stream);
void sgd(const StepParameters &parameters, const float *gradients, float *momentum,
         const SgdSettings &step, const vescomm_gpu_clip_t *clip, Pieces pieces,
         cuda::Stream stream);

// Codes and scales of adam8bit().
struct Moments8bit {
    std::uint8_t *m, *v;
    float *m_scales, *v_scales;
};
void adam8bit(const StepParameters &parameters, const float *gradients, const Moments8bit &moments,
              const AdamWStep &step, const vescomm_gpu_clip_t *clip, Pieces pieces,
              cuda::Stream stream);

}  // namespace vescomm::internal::device
