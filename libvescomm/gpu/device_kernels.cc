// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_kernels.h"

#include <algorithm>
#include <string>

#include "base/types.h"
#include "execute/kernels.h"
#include "gpu/kernel_arguments.h"
#include "gpu/launch_pieces.h"

namespace vescomm::internal::device {
namespace {

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

}  // namespace vescomm::internal::device
