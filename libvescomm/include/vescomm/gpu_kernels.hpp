// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Kernels on device memory for C++20: gpu_kernels.h with the arrays of gpu.hpp, and exceptions for
// its statuses. Header only; it needs no header of CUDA. gpu_kernels.h documents each call at the C
// function with the same name: vescomm_gpu_add_squares() for gpu::add_squares(). All of it is
// experimental, as gpu_kernels.h is.
//
//     const vescomm_gpu_piece_t shard[] = {{0, 0, gradients.elements}};
//     vescomm::gpu::add_squares(words, gradients, shard, stream);
//     vescomm::gpu::all_reduce(device, words, VESCOMM_SUM, stream);
//     vescomm::gpu::clip_factor(words, 1 / loss_scale, max_norm, clip, stream);
//     vescomm::gpu::adamw(masters, gradients, m, v, settings, clip, shard, stream);
//
// A call puts work on a stream of the current device, and returns before it is complete. The memory
// must exist until then: owners of gpu.hpp wait before they free theirs, if it belongs to the same
// device.
//
// A failed call throws vescomm::Error. A piece that ends behind its array, and an array of another
// type than the call needs, throw std::invalid_argument before the call.
#ifndef VESCOMM_GPU_KERNELS_HPP
#define VESCOMM_GPU_KERNELS_HPP

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "vescomm/gpu.hpp"
#include "vescomm/gpu_kernels.h"

namespace vescomm::gpu {
inline namespace v0 {

// In host memory, used during the call only.
using Pieces = std::span<const vescomm_gpu_piece_t>;

namespace detail {

// Checks that elements [first, first + count) of each piece are elements of the array.
inline void require_pieces(const char *function, const char *what, const ConstArray &array,
                           Pieces pieces, std::int64_t vescomm_gpu_piece_t::*first) {
    for (const vescomm_gpu_piece_t &piece : pieces) {
        // The C function refuses negative numbers.
        if (piece.count <= 0 || piece.*first < 0 || piece.count <= array.elements - piece.*first)
            continue;
        throw std::invalid_argument(std::string(function) + ": a piece has " +
                                    std::to_string(piece.count) + " elements from " +
                                    std::to_string(piece.*first) + " on, and " + what + " has " +
                                    std::to_string(array.elements));
    }
}

inline void require_target(const char *function, const ConstArray &array, Pieces pieces,
                           const char *what = "target") {
    require_pieces(function, what, array, pieces, &vescomm_gpu_piece_t::target);
}

inline void require_source(const char *function, const ConstArray &array, Pieces pieces,
                           const char *what = "source") {
    require_pieces(function, what, array, pieces, &vescomm_gpu_piece_t::source);
}

inline std::int64_t *require_words(const char *function, const Array &words) {
    require_elements(function, "words", words, VESCOMM_GPU_SUM_WORDS);
    require_type(function, "words", words, VESCOMM_I64);
    return static_cast<std::int64_t *>(words.data);
}

// Checks that there is a scale for each block. A block of no elements is refused by the C function.
inline void require_scales(const char *function, const ConstArray &scales, std::int64_t elements,
                           std::int64_t block) {
    require_type(function, "scales", scales, VESCOMM_F32);
    if (block > 0 && elements > 0)
        require_elements(function, "scales", scales, (elements - 1) / block + 1);
}

// The elements of an array from those of its last source on.
inline ConstArray last(ConstArray array, std::int64_t stride, std::int32_t sources) {
    // The C function refuses other numbers.
    if (stride < 0 || sources < 1) return array;
    if (sources > 1 && stride > array.elements / (sources - 1)) array.elements = 0;
    else array.elements -= stride * (sources - 1);
    return array;
}

// Checks the arrays that all optimizers have.
inline void require_step(const char *function, const ConstArray &parameters,
                         const ConstArray &gradients, Pieces pieces) {
    require_type(function, "gradients", gradients, VESCOMM_F32);
    require_target(function, parameters, pieces, "parameters");
    require_source(function, gradients, pieces, "gradients");
}

inline void require_state(const char *function, const char *what, const ConstArray &state,
                          vescomm_type_t type, Pieces pieces) {
    require_type(function, what, state, type);
    require_target(function, state, pieces, what);
}

// Blocks of moments of pieces that are in their arrays. The C function refuses negative numbers.
inline std::int64_t moment_blocks(Pieces pieces) {
    std::int64_t blocks = 0;
    for (const vescomm_gpu_piece_t &piece : pieces)
        if (piece.count > 0) blocks += (piece.count - 1) / VESCOMM_GPU_MOMENT_BLOCK + 1;
    return blocks;
}

inline std::int64_t count(Pieces pieces) {
    return static_cast<std::int64_t>(pieces.size());
}

}  // namespace detail

inline void check_kernels() {
    check(vescomm_gpu_check_kernels());
}

inline void zero(Array target, Pieces pieces, void *stream = nullptr) {
    detail::require_target("gpu::zero", target, pieces);
    check(vescomm_gpu_zero(target.data, target.type, pieces.data(), detail::count(pieces), stream));
}

inline void copy(Array target, ConstArray source, Pieces pieces, void *stream = nullptr) {
    detail::require_target("gpu::copy", target, pieces);
    detail::require_source("gpu::copy", source, pieces);
    check(vescomm_gpu_copy(target.data, target.type, source.data, source.type, pieces.data(),
                           detail::count(pieces), stream));
}

inline void add(Array target, ConstArray source, Pieces pieces, void *stream = nullptr) {
    detail::require_target("gpu::add", target, pieces);
    detail::require_source("gpu::add", source, pieces);
    check(vescomm_gpu_add(target.data, target.type, source.data, source.type, pieces.data(),
                          detail::count(pieces), stream));
}

inline void scale(Array target, double factor, Pieces pieces, void *stream = nullptr) {
    detail::require_target("gpu::scale", target, pieces);
    check(vescomm_gpu_scale(target.data, target.type, factor, pieces.data(), detail::count(pieces),
                            stream));
}

// `overflow`: a device address.
inline void unscale(Array target, double factor, std::int32_t *overflow, Pieces pieces,
                    void *stream = nullptr) {
    detail::require_target("gpu::unscale", target, pieces);
    check(vescomm_gpu_unscale(target.data, target.type, factor, overflow, pieces.data(),
                              detail::count(pieces), stream));
}

// `words`: VESCOMM_GPU_SUM_WORDS elements of type i64, as in clip_factor().
inline void add_squares(Array words, ConstArray source, Pieces pieces, void *stream = nullptr) {
    std::int64_t *const sum = detail::require_words("gpu::add_squares", words);
    detail::require_target("gpu::add_squares", source, pieces, "source");
    check(vescomm_gpu_add_squares(sum, source.data, source.type, pieces.data(),
                                  detail::count(pieces), stream));
}

// `result`: a device address.
inline void clip_factor(Array words, double scale, double max_norm, vescomm_gpu_clip_t *result,
                        void *stream = nullptr) {
    std::int64_t *const sum = detail::require_words("gpu::clip_factor", words);
    check(vescomm_gpu_clip_factor(sum, scale, max_norm, result, stream));
}

// Quantises all elements of `source`. The type of `codes` is i8 or f8e4m3, that of `scales` f32.
inline void quantise(Array codes, Array scales, ConstArray source, std::int64_t block,
                     void *stream = nullptr) {
    detail::require_elements("gpu::quantise", "codes", codes, source.elements);
    detail::require_scales("gpu::quantise", scales, source.elements, block);
    check(vescomm_gpu_quantise(codes.data, static_cast<float *>(scales.data), codes.type,
                               source.data, source.type, source.elements, block, stream));
}

// Writes all elements of `target`.
inline void dequantise(Array target, ConstArray codes, ConstArray scales, std::int64_t block,
                       void *stream = nullptr) {
    detail::require_elements("gpu::dequantise", "codes", codes, target.elements);
    detail::require_scales("gpu::dequantise", scales, target.elements, block);
    check(vescomm_gpu_dequantise(target.data, target.type, codes.data,
                                 static_cast<const float *>(scales.data), codes.type,
                                 target.elements, block, stream));
}

// Sums contributions into all elements of `target`, which is f32, or adds the sum to them. The
// codes of source k begin at element k * code_stride of `codes`, its scales at k * scale_stride of
// `scales`.
inline void sum_quantised(Array target, ConstArray codes, std::int64_t code_stride,
                          ConstArray scales, std::int64_t scale_stride, std::int32_t sources,
                          std::int64_t block, float factor = 1, bool add = false,
                          void *stream = nullptr) {
    const char *function = "gpu::sum_quantised";
    detail::require_type(function, "target", target, VESCOMM_F32);
    if (target.elements > 0) {
        detail::require_elements(function, "codes", detail::last(codes, code_stride, sources),
                                 target.elements);
        detail::require_scales(function, detail::last(scales, scale_stride, sources),
                               target.elements, block);
    }
    check(vescomm_gpu_sum_quantised(static_cast<float *>(target.data), add ? 1 : 0, codes.data,
                                    code_stride, static_cast<const float *>(scales.data),
                                    scale_stride, sources, codes.type, target.elements, block,
                                    factor, stream));
}

// The parameters are f32, bf16 or f16: their type replaces `parameter_type` of the options. The
// other arrays are f32. `clip`: a device address, or nullptr.
inline void adamw(Array parameters, ConstArray gradients, Array m, Array v,
                  const vescomm_gpu_adamw_options_t &options, const vescomm_gpu_clip_t *clip,
                  Pieces pieces, void *stream = nullptr) {
    const char *function = "gpu::adamw";
    detail::require_step(function, parameters, gradients, pieces);
    detail::require_state(function, "m", m, VESCOMM_F32, pieces);
    detail::require_state(function, "v", v, VESCOMM_F32, pieces);
    vescomm_gpu_adamw_options_t typed = options;
    typed.parameter_type = parameters.type;
    check(vescomm_gpu_adamw(parameters.data, static_cast<const float *>(gradients.data),
                            static_cast<float *>(m.data), static_cast<float *>(v.data), &typed,
                            clip, pieces.data(), detail::count(pieces), stream));
}

// As adamw(), but `m` and `v` are u8, with a scale in f32 for each block.
inline void adam8bit(Array parameters, ConstArray gradients, Array m, Array v, Array m_scales,
                     Array v_scales, const vescomm_gpu_adamw_options_t &options,
                     const vescomm_gpu_clip_t *clip, Pieces pieces, void *stream = nullptr) {
    const char *function = "gpu::adam8bit";
    detail::require_step(function, parameters, gradients, pieces);
    detail::require_state(function, "m", m, VESCOMM_U8, pieces);
    detail::require_state(function, "v", v, VESCOMM_U8, pieces);
    detail::require_type(function, "m_scales", m_scales, VESCOMM_F32);
    detail::require_type(function, "v_scales", v_scales, VESCOMM_F32);
    const std::int64_t blocks = detail::moment_blocks(pieces);
    detail::require_elements(function, "m_scales", m_scales, blocks);
    detail::require_elements(function, "v_scales", v_scales, blocks);
    vescomm_gpu_adamw_options_t typed = options;
    typed.parameter_type = parameters.type;
    check(vescomm_gpu_adam8bit(
        parameters.data, static_cast<const float *>(gradients.data),
        static_cast<std::uint8_t *>(m.data), static_cast<std::uint8_t *>(v.data),
        static_cast<float *>(m_scales.data), static_cast<float *>(v_scales.data), &typed, clip,
        pieces.data(), detail::count(pieces), stream));
}

// As adamw(). `momentum` is not used if that of the options is 0.
inline void sgd(Array parameters, ConstArray gradients, Array momentum,
                const vescomm_gpu_sgd_options_t &options, const vescomm_gpu_clip_t *clip,
                Pieces pieces, void *stream = nullptr) {
    const char *function = "gpu::sgd";
    detail::require_step(function, parameters, gradients, pieces);
    if (options.momentum != 0)
        detail::require_state(function, "momentum", momentum, VESCOMM_F32, pieces);
    vescomm_gpu_sgd_options_t typed = options;
    typed.parameter_type = parameters.type;
    check(vescomm_gpu_sgd(parameters.data, static_cast<const float *>(gradients.data),
                          static_cast<float *>(momentum.data), &typed, clip, pieces.data(),
                          detail::count(pieces), stream));
}

}  // namespace v0
}  // namespace vescomm::gpu

#endif
