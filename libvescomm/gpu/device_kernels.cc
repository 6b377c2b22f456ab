// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_kernels.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/types.h"
#include "execute/kernels.h"
#include "gpu/kernel_library.h"
#include "gpu/kernels/parameters.h"
#include "gpu/unaligned_text.h"

namespace vescomm::internal::device {
namespace {

constexpr std::int64_t max_elements = std::int64_t{1} << 40;

[[noreturn]] void refuse(const char *function, const std::string &why) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, std::string(function) + ": " + why);
}

std::int64_t tiles_of(std::int64_t elements, int tile = gpu_kernel::tile_elements) {
    return (elements + tile - 1) / tile;
}

// Returns the number of elements of all pieces.
std::int64_t checked_pieces(const char *function, Pieces pieces, bool has_source) {
    std::int64_t end = 0, elements = 0;
    for (std::size_t k = 0; k < pieces.size(); ++k) {
        const vescomm_gpu_piece_t &piece = pieces[k];
        const auto text = [&] {
            return "piece " + std::to_string(k) + " has target " + std::to_string(piece.target) +
                   ", source " + std::to_string(piece.source) + " and count " +
                   std::to_string(piece.count);
        };
        if (piece.count < 0 || piece.target < 0 || (has_source && piece.source < 0))
            refuse(function, text() + "; they must be 0 or more");
        if (piece.count > max_elements - elements)
            refuse(function, text() + "; all pieces must have at most 2^40 elements");
        if (piece.target > INT64_MAX / 16 || (has_source && piece.source > INT64_MAX / 16))
            refuse(function, text() + "; offsets must be at most 2^59");
        if (piece.target < end)
            refuse(function, text() + ", but the piece before ends at " + std::to_string(end) +
                                 "; pieces must ascend and not overlap in the target");
        end = piece.target + piece.count;
        elements += piece.count;
    }
    return elements;
}

void check_address(const char *function, const char *name, const void *address,
                   std::size_t alignment) {
    if (address == nullptr) refuse(function, std::string(name) + " is NULL; it must be given");
    if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
        refuse(function, unaligned_text(name, address, alignment));
}

void check_type(const char *function, vescomm_type_t type) {
    if (!is_type(type)) refuse(function, name_of_type(type) + " is not a type of vescomm.h");
}

void check_float(const char *function, vescomm_type_t type) {
    if (!is_type(type) || !is_float(type))
        refuse(function, name_of_type(type) + " is not a float; use f32, bf16, f16, f64 or an f8");
}

void check_small_float(const char *function, vescomm_type_t type,
                       const std::string &name = "the type") {
    if (type != VESCOMM_F32 && type != VESCOMM_BF16 && type != VESCOMM_F16)
        refuse(function, name + " is " + name_of_type(type) + "; it must be f32, bf16 or f16");
}

void check_finite(const char *function, const char *name, double value) {
    if (!std::isfinite(value))
        refuse(function,
               std::string(name) + " is " + std::to_string(value) + "; it must be finite");
}

// Elements of a type as unsigned integers: their type, and the number for each element.
struct Bits {
    vescomm_type_t type;
    std::int64_t factor;
};

Bits bits_of(vescomm_type_t type) {
    switch (size_of(type)) {
        case 1:
            return {VESCOMM_U8, 1};
        case 2:
            return {VESCOMM_U16, 1};
        case 4:
            return {VESCOMM_U32, 1};
        default:
            return {VESCOMM_U64, static_cast<std::int64_t>(size_of(type) / 8)};
    }
}

// The slabs of a call, without pieces.
template <typename Parameters>
gpu_kernel::Slabs &slabs_of(Parameters &parameters) {
    if constexpr (std::is_same_v<Parameters, gpu_kernel::Slabs>) return parameters;
    else if constexpr (std::is_same_v<Parameters, gpu_kernel::NarrowAdamW>)
        return parameters.adamw.slabs;
    else return parameters.slabs;
}

// Launches a kernel for each max_pieces pieces that have elements. `factor` multiplies offsets and
// counts. `tile`: elements of a block.
template <typename Parameters>
void launch_pieces(Kernel kernel, Parameters parameters, Pieces pieces, cuda::Stream stream,
                   std::int64_t factor = 1, int tile = gpu_kernel::tile_elements) {
    const KernelLibrary &library = kernel_library();
    gpu_kernel::Slabs &slabs = slabs_of(parameters);
    std::int64_t tiles = 0;
    const auto launch = [&] {
        if (slabs.pieces > 0) library.launch(kernel, tiles, &parameters, stream);
        slabs.pieces = 0;
        tiles = 0;
    };
    for (const vescomm_gpu_piece_t &piece : pieces) {
        if (piece.count == 0) continue;
        slabs.piece[slabs.pieces] = {piece.target * factor, piece.source * factor,
                                     piece.count * factor};
        tiles += tiles_of(piece.count * factor, tile);
        slabs.first_tile[0] = 0;
        slabs.first_tile[++slabs.pieces] = static_cast<std::uint32_t>(tiles);
        if (slabs.pieces == gpu_kernel::max_pieces) launch();
    }
    launch();
}

gpu_kernel::Slabs slabs(void *target, vescomm_type_t target_type, const void *source = nullptr,
                        vescomm_type_t source_type = 0) {
    gpu_kernel::Slabs made{};
    made.target = target;
    made.source = source;
    made.target_type = target_type;
    made.source_type = source_type;
    return made;
}

}  // namespace

void zero(void *target, vescomm_type_t type, Pieces pieces, cuda::Stream stream) {
    const char *function = "vescomm_gpu_zero";
    check_type(function, type);
    if (checked_pieces(function, pieces, false) > 0)
        check_address(function, "target", target, alignment_of(type));
    const Bits bits = bits_of(type);
    launch_pieces(Kernel::zero, slabs(target, bits.type), pieces, stream, bits.factor);
}

void copy(void *target, vescomm_type_t target_type, const void *source, vescomm_type_t source_type,
          Pieces pieces, cuda::Stream stream) {
    const char *function = "vescomm_gpu_copy";
    check_type(function, target_type);
    check_type(function, source_type);
    if (!can_convert(target_type, source_type))
        refuse(function, "cannot convert from " + name_of_type(source_type) + " to " +
                             name_of_type(target_type) +
                             "; the types must be equal, or floats of which one is f32 or f64");
    if (checked_pieces(function, pieces, true) > 0) {
        check_address(function, "target", target, alignment_of(target_type));
        check_address(function, "source", source, alignment_of(source_type));
    }
    if (target_type != source_type)
        return launch_pieces(Kernel::cast, slabs(target, target_type, source, source_type), pieces,
                             stream);
    const Bits bits = bits_of(target_type);
    launch_pieces(Kernel::copy, slabs(target, bits.type, source, bits.type), pieces, stream,
                  bits.factor);
}

void add(void *target, vescomm_type_t target_type, const void *source, vescomm_type_t source_type,
         Pieces pieces, cuda::Stream stream) {
    const char *function = "vescomm_gpu_add";
    check_float(function, target_type);
    check_float(function, source_type);
    if (target_type != source_type && target_type != VESCOMM_F32 && source_type != VESCOMM_F32)
        refuse(function, "cannot add " + name_of_type(source_type) + " to " +
                             name_of_type(target_type) +
                             "; the types must be equal, or one of them f32");
    if (checked_pieces(function, pieces, true) > 0) {
        check_address(function, "target", target, alignment_of(target_type));
        check_address(function, "source", source, alignment_of(source_type));
    }
    launch_pieces(Kernel::add, slabs(target, target_type, source, source_type), pieces, stream);
}

void scale(void *target, vescomm_type_t type, double factor, Pieces pieces, cuda::Stream stream) {
    const char *function = "vescomm_gpu_scale";
    check_float(function, type);
    if (checked_pieces(function, pieces, false) > 0)
        check_address(function, "target", target, alignment_of(type));
    launch_pieces(Kernel::scale, gpu_kernel::Elementwise{slabs(target, type), factor, nullptr},
                  pieces, stream);
}

void unscale(void *target, vescomm_type_t type, double factor, std::int32_t *overflow,
             Pieces pieces, cuda::Stream stream) {
    const char *function = "vescomm_gpu_unscale";
    check_float(function, type);
    check_address(function, "overflow", overflow, alignof(std::int32_t));
    if (checked_pieces(function, pieces, false) > 0)
        check_address(function, "target", target, alignment_of(type));
    launch_pieces(Kernel::unscale, gpu_kernel::Elementwise{slabs(target, type), factor, overflow},
                  pieces, stream);
}

void add_squares(std::int64_t *words, const void *source, vescomm_type_t type, Pieces pieces,
                 cuda::Stream stream) {
    const char *function = "vescomm_gpu_add_squares";
    check_small_float(function, type);
    check_address(function, "words", words, alignof(std::int64_t));
    if (checked_pieces(function, pieces, false) > 0)
        check_address(function, "source", source, alignment_of(type));
    // The kernel only reads it.
    launch_pieces(Kernel::add_squares,
                  gpu_kernel::Squares{slabs(const_cast<void *>(source), type), words}, pieces,
                  stream, 1, gpu_kernel::summed_elements);
}

void clip_factor(std::int64_t *words, double scale, double max_norm, vescomm_gpu_clip_t *result,
                 cuda::Stream stream) {
    const char *function = "vescomm_gpu_clip_factor";
    check_address(function, "words", words, alignof(std::int64_t));
    check_address(function, "result", result, alignof(vescomm_gpu_clip_t));
    check_finite(function, "scale", scale);
    check_finite(function, "max_norm", max_norm);
    const gpu_kernel::Clip parameters{words, scale, max_norm, result};
    kernel_library().launch(Kernel::clip_factor, 1, &parameters, stream);
}

namespace {

void check_codes(const char *function, vescomm_type_t code_type, vescomm_type_t type,
                 std::int64_t count, std::int64_t block) {
    if (code_type != VESCOMM_I8 && code_type != VESCOMM_F8E4M3)
        refuse(function,
               "the type of codes is " + name_of_type(code_type) + "; it must be i8 or f8e4m3");
    check_small_float(function, type);
    if (count < 0 || count > max_elements)
        refuse(function, "count is " + std::to_string(count) + "; it must be from 0 to 2^40");
    if (block < 1) refuse(function, "block is " + std::to_string(block) + "; it must be 1 or more");
}

}  // namespace

void quantise(void *codes, float *scales, vescomm_type_t code_type, const void *source,
              vescomm_type_t type, std::int64_t count, std::int64_t block, cuda::Stream stream) {
    const char *function = "vescomm_gpu_quantise";
    check_codes(function, code_type, type, count, block);
    const KernelLibrary &library = kernel_library();
    if (count == 0) return;
    check_address(function, "codes", codes, 1);
    check_address(function, "scales", scales, alignof(float));
    check_address(function, "source", source, alignment_of(type));
    block = std::min(block, count);
    const std::int64_t block_count = std::clamp<std::int64_t>(
        gpu_kernel::quantised_elements / block, 1, gpu_kernel::max_code_blocks);
    const gpu_kernel::Quantise parameters{
        source, static_cast<std::uint8_t *>(codes),     scales,    count,
        block,  static_cast<std::int32_t>(block_count), code_type, type};
    const std::int64_t elements = block * block_count;
    library.launch(Kernel::quantise, (count + elements - 1) / elements, &parameters, stream);
}

void dequantise(void *target, vescomm_type_t type, const void *codes, const float *scales,
                vescomm_type_t code_type, std::int64_t count, std::int64_t block,
                cuda::Stream stream) {
    const char *function = "vescomm_gpu_dequantise";
    check_codes(function, code_type, type, count, block);
    const KernelLibrary &library = kernel_library();
    if (count == 0) return;
    check_address(function, "target", target, alignment_of(type));
    check_address(function, "codes", codes, 1);
    check_address(function, "scales", scales, alignof(float));
    const gpu_kernel::Dequantise parameters{static_cast<const std::uint8_t *>(codes),
                                            scales,
                                            target,
                                            count,
                                            std::min(block, count),
                                            code_type,
                                            type};
    library.launch(Kernel::dequantise, tiles_of(count), &parameters, stream);
}

void sum_quantised(float *target, bool add, const QuantisedSources &sources, std::int64_t count,
                   std::int64_t block, float factor, cuda::Stream stream) {
    const char *function = "vescomm_gpu_sum_quantised";
    check_codes(function, sources.code_type, VESCOMM_F32, count, block);
    check_finite(function, "factor", factor);
    if (sources.count < 1)
        refuse(function, "sources is " + std::to_string(sources.count) + "; it must be 1 or more");
    const auto check_stride = [&](const char *name, std::int64_t stride) {
        if (stride < 0 || stride > max_elements)
            refuse(function, std::string(name) + " is " + std::to_string(stride) +
                                 "; it must be from 0 to 2^40");
    };
    check_stride("code_stride", sources.code_stride);
    check_stride("scale_stride", sources.scale_stride);
    const KernelLibrary &library = kernel_library();
    if (count == 0) return;
    check_address(function, "target", target, alignof(float));
    check_address(function, "codes", sources.codes, 1);
    check_address(function, "scales", sources.scales, alignof(float));
    const gpu_kernel::SumQuantised parameters{static_cast<const std::uint8_t *>(sources.codes),
                                              sources.scales,
                                              target,
                                              sources.code_stride,
                                              sources.scale_stride,
                                              count,
                                              std::min(block, count),
                                              factor,
                                              sources.count,
                                              sources.code_type,
                                              add ? 1 : 0};
    library.launch(Kernel::sum_quantised, tiles_of(count), &parameters, stream);
}

namespace {

void check_step(const char *function, const AdamWStep &step) {
    const auto require_range = [&](const char *name, double value, double end) {
        if (!(value >= 0 && value < end))
            refuse(function, std::string(name) + " is " + std::to_string(value) +
                                 "; it must be 0 or more, and " +
                                 (end == 1 ? "below 1" : "finite"));
    };
    require_range("learning_rate", step.learning_rate, INFINITY);
    require_range("beta1", step.beta1, 1);
    require_range("beta2", step.beta2, 1);
    require_range("epsilon", step.epsilon, INFINITY);
    require_range("weight_decay", step.weight_decay, INFINITY);
    if (step.step < 1)
        refuse(function, "step is " + std::to_string(step.step) + "; steps count from 1");
}

}  // namespace

void adamw(const AdamWParameters &parameters, const float *gradients, float *m, float *v,
           const AdamWStep &step, const vescomm_gpu_clip_t *clip, Pieces pieces,
           cuda::Stream stream) {
    const char *function = "vescomm_gpu_adamw";
    const vescomm_type_t type = parameters.type;
    check_step(function, step);
    check_small_float(function, type, "parameter_type");
    if (parameters.stochastic && type == VESCOMM_F32)
        refuse(function, "stochastic is not 0, but the parameters are f32; set it to 0");
    if (clip != nullptr) check_address(function, "clip", clip, alignof(vescomm_gpu_clip_t));
    if (checked_pieces(function, pieces, true) > 0) {
        check_address(function, "parameters", parameters.data, alignment_of(type));
        check_address(function, "gradients", gradients, alignof(float));
        check_address(function, "m", m, alignof(float));
        check_address(function, "v", v, alignof(float));
    }
    const gpu_kernel::AdamW adamw{slabs(parameters.data, type, gradients, VESCOMM_F32), m, v, clip,
                                  adamw_constants(step)};
    if (type == VESCOMM_F32) return launch_pieces(Kernel::adamw, adamw, pieces, stream);
    launch_pieces(Kernel::adamw_narrow,
                  gpu_kernel::NarrowAdamW{adamw, parameters.random_stream, parameters.random_first,
                                          parameters.stochastic ? 1 : 0},
                  pieces, stream);
}

}  // namespace vescomm::internal::device
