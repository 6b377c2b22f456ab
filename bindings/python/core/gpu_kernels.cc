// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Kernels on device memory: vescomm/gpu_kernels.h. vescomm/gpu_kernels.py documents them.
#include "vescomm/gpu_kernels.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "errors.h"
#include "gil.h"
#include "gpu.h"
#include "gpu_array.h"
#include "integer.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// Pieces of a program: target, source, count. None: the whole target.
using GivenPieces = std::optional<std::vector<std::tuple<Integer, Integer, Integer>>>;

// Reads the arrays of one call, which must be on one device.
class Arrays {
public:
    gpu::Array read(nb::handle array, const char *name) {
        const DeviceArgument argument = read_device_array(array, name, device_, "the first array");
        device_ = argument.device;
        return {argument.data, argument.elements, argument.type};
    }
    // Reads an array of at least `bytes` bytes. None: nullptr.
    void *read_bytes(nb::handle array, const char *name, std::size_t bytes) {
        if (array.is_none()) return nullptr;
        const gpu::Array read_array = read(array, name);
        const std::size_t given =
            static_cast<std::size_t>(read_array.elements) * vescomm_type_get_bytes(read_array.type);
        if (given < bytes)
            refuse(std::string(name) + " has " + std::to_string(given) +
                   " bytes, and the kernel needs " + std::to_string(bytes));
        return read_array.data;
    }

private:
    int device_ = any_device;
};

std::vector<vescomm_gpu_piece_t> pieces_of(const GivenPieces &given, std::int64_t elements) {
    if (!given) return {{0, 0, elements}};
    std::vector<vescomm_gpu_piece_t> pieces;
    pieces.reserve(given->size());
    for (const auto &[target, source, count] : *given) pieces.push_back({target, source, count});
    return pieces;
}

// Calls a function of gpu_kernels.hpp, which may wait until the queue of the stream has a place.
template <typename Function>
void launch(const Function &function) {
    vescomm_status_t status = VESCOMM_OK;
    std::string sentence;
    {
        const GilReleased released;
        try {
            function();
        } catch (const Error &error) {
            status = error.status();
            sentence = error.what();
        } catch (const std::invalid_argument &error) {
            status = VESCOMM_ERROR_INVALID_ARGUMENT;
            sentence = error.what();
        }
    }
    if (status != VESCOMM_OK) raise(status, sentence);
}

void zero(nb::handle target, const GivenPieces &pieces, Integer stream) {
    const gpu::Array to = Arrays().read(target, "target");
    const auto all = pieces_of(pieces, to.elements);
    launch([&] { gpu::zero(to, all, stream.pointer()); });
}

void copy(nb::handle target, nb::handle source, const GivenPieces &pieces, Integer stream) {
    Arrays arrays;
    const gpu::Array to = arrays.read(target, "target"), from = arrays.read(source, "source");
    const auto all = pieces_of(pieces, to.elements);
    launch([&] { gpu::copy(to, from, all, stream.pointer()); });
}

void add(nb::handle target, nb::handle source, const GivenPieces &pieces, Integer stream) {
    Arrays arrays;
    const gpu::Array to = arrays.read(target, "target"), from = arrays.read(source, "source");
    const auto all = pieces_of(pieces, to.elements);
    launch([&] { gpu::add(to, from, all, stream.pointer()); });
}

void scale(nb::handle target, double factor, const GivenPieces &pieces, Integer stream) {
    const gpu::Array to = Arrays().read(target, "target");
    const auto all = pieces_of(pieces, to.elements);
    launch([&] { gpu::scale(to, factor, all, stream.pointer()); });
}

void unscale(nb::handle target, double factor, nb::handle overflow, const GivenPieces &pieces,
             Integer stream) {
    Arrays arrays;
    const gpu::Array to = arrays.read(target, "target");
    auto *flag =
        static_cast<std::int32_t *>(arrays.read_bytes(overflow, "overflow", sizeof(std::int32_t)));
    const auto all = pieces_of(pieces, to.elements);
    launch([&] { gpu::unscale(to, factor, flag, all, stream.pointer()); });
}

void add_squares(nb::handle words, nb::handle source, const GivenPieces &pieces, Integer stream) {
    Arrays arrays;
    const gpu::Array sum = arrays.read(words, "words"), from = arrays.read(source, "source");
    const auto all = pieces_of(pieces, from.elements);
    launch([&] { gpu::add_squares(sum, from, all, stream.pointer()); });
}

void clip_factor(nb::handle words, double factor, double max_norm, nb::handle result,
                 Integer stream) {
    Arrays arrays;
    const gpu::Array sum = arrays.read(words, "words");
    auto *clip = static_cast<vescomm_gpu_clip_t *>(
        arrays.read_bytes(result, "result", sizeof(vescomm_gpu_clip_t)));
    launch([&] { gpu::clip_factor(sum, factor, max_norm, clip, stream.pointer()); });
}

void quantise(nb::handle codes, nb::handle scales, nb::handle source, Integer block,
              Integer code_type, Integer stream) {
    Arrays arrays;
    gpu::Array to = arrays.read(codes, "codes");
    const gpu::Array of_blocks = arrays.read(scales, "scales"),
                     from = arrays.read(source, "source");
    if (vescomm_type_get_bytes(to.type) == 1) to.type = code_type.small("code_type");
    launch([&] { gpu::quantise(to, of_blocks, from, block, stream.pointer()); });
}

void dequantise(nb::handle target, nb::handle codes, nb::handle scales, Integer block,
                Integer code_type, Integer stream) {
    Arrays arrays;
    const gpu::Array to = arrays.read(target, "target");
    gpu::Array from = arrays.read(codes, "codes");
    const gpu::Array of_blocks = arrays.read(scales, "scales");
    if (vescomm_type_get_bytes(from.type) == 1) from.type = code_type.small("code_type");
    launch([&] { gpu::dequantise(to, from, of_blocks, block, stream.pointer()); });
}

void sum_quantised(nb::handle target, nb::handle codes, Integer code_stride, nb::handle scales,
                   Integer scale_stride, Integer sources, Integer block, float factor, bool add,
                   Integer code_type, Integer stream) {
    Arrays arrays;
    const gpu::Array to = arrays.read(target, "target");
    gpu::Array from = arrays.read(codes, "codes");
    const gpu::Array of_blocks = arrays.read(scales, "scales");
    if (vescomm_type_get_bytes(from.type) == 1) from.type = code_type.small("code_type");
    const std::int32_t count = sources.small("sources");
    launch([&] {
        gpu::sum_quantised(to, from, code_stride, of_blocks, scale_stride, count, block, factor,
                           add, stream.pointer());
    });
}

// Stream, and number of element 0 of the parameters.
using RandomBits = std::optional<std::tuple<std::uint64_t, std::uint64_t>>;

template <typename Options>
void set_random_bits(Options &options, const RandomBits &random) {
    if (!random) return;
    options.stochastic = 1;
    std::tie(options.random_stream, options.random_first) = *random;
}

vescomm_gpu_adamw_options_t adamw_options(Integer step, double learning_rate, double beta1,
                                          double beta2, double epsilon, double weight_decay,
                                          float gradient_scale, const RandomBits &random) {
    vescomm_gpu_adamw_options_t options = vescomm_gpu_adamw_options_init();
    options.gradient_scale = gradient_scale;
    options.learning_rate = learning_rate;
    options.beta1 = beta1;
    options.beta2 = beta2;
    options.epsilon = epsilon;
    options.weight_decay = weight_decay;
    options.step = step;
    set_random_bits(options, random);
    return options;
}

const vescomm_gpu_clip_t *read_clip(Arrays &arrays, nb::handle clip) {
    return static_cast<const vescomm_gpu_clip_t *>(
        arrays.read_bytes(clip, "clip", sizeof(vescomm_gpu_clip_t)));
}

void adamw(nb::handle parameters, nb::handle gradients, nb::handle m, nb::handle v, Integer step,
           double learning_rate, double beta1, double beta2, double epsilon, double weight_decay,
           float gradient_scale, nb::handle clip, const RandomBits &random,
           const GivenPieces &pieces, Integer stream) {
    Arrays arrays;
    const gpu::Array to = arrays.read(parameters, "parameters");
    const gpu::Array from = arrays.read(gradients, "gradients");
    const gpu::Array first = arrays.read(m, "m"), second = arrays.read(v, "v");
    const auto options = adamw_options(step, learning_rate, beta1, beta2, epsilon, weight_decay,
                                       gradient_scale, random);
    const vescomm_gpu_clip_t *factor = read_clip(arrays, clip);
    const auto all = pieces_of(pieces, to.elements);
    launch([&] { gpu::adamw(to, from, first, second, options, factor, all, stream.pointer()); });
}

void adam8bit(nb::handle parameters, nb::handle gradients, nb::handle m, nb::handle v,
              nb::handle m_scales, nb::handle v_scales, Integer step, double learning_rate,
              double beta1, double beta2, double epsilon, double weight_decay, float gradient_scale,
              nb::handle clip, const RandomBits &random, const GivenPieces &pieces,
              Integer stream) {
    Arrays arrays;
    const gpu::Array to = arrays.read(parameters, "parameters");
    const gpu::Array from = arrays.read(gradients, "gradients");
    const gpu::Array first = arrays.read(m, "m"), second = arrays.read(v, "v");
    const gpu::Array first_scales = arrays.read(m_scales, "m_scales");
    const gpu::Array second_scales = arrays.read(v_scales, "v_scales");
    const auto options = adamw_options(step, learning_rate, beta1, beta2, epsilon, weight_decay,
                                       gradient_scale, random);
    const vescomm_gpu_clip_t *factor = read_clip(arrays, clip);
    const auto all = pieces_of(pieces, to.elements);
    launch([&] {
        gpu::adam8bit(to, from, first, second, first_scales, second_scales, options, factor, all,
                      stream.pointer());
    });
}

void sgd(nb::handle parameters, nb::handle gradients, nb::handle momentum_array, Integer step,
         double learning_rate, double momentum, double dampening, double weight_decay,
         bool nesterov, bool decoupled, float gradient_scale, nb::handle clip,
         const RandomBits &random, const GivenPieces &pieces, Integer stream) {
    Arrays arrays;
    const gpu::Array to = arrays.read(parameters, "parameters");
    const gpu::Array from = arrays.read(gradients, "gradients");
    gpu::Array mean(nullptr, 0, VESCOMM_F32);
    if (!momentum_array.is_none()) mean = arrays.read(momentum_array, "momentum_array");
    vescomm_gpu_sgd_options_t options = vescomm_gpu_sgd_options_init();
    options.gradient_scale = gradient_scale;
    options.learning_rate = learning_rate;
    options.momentum = momentum;
    options.dampening = dampening;
    options.weight_decay = weight_decay;
    options.step = step;
    options.nesterov = nesterov ? 1 : 0;
    options.decoupled = decoupled ? 1 : 0;
    set_random_bits(options, random);
    const vescomm_gpu_clip_t *factor = read_clip(arrays, clip);
    const auto all = pieces_of(pieces, to.elements);
    launch([&] { gpu::sgd(to, from, mean, options, factor, all, stream.pointer()); });
}

}  // namespace

void define_gpu_kernels(nb::module_ &module) {
    using nb::arg;
    module.def("gpu_check_kernels", [] { launch(gpu::check_kernels); });
    module.def("gpu_zero", zero, arg(), arg().none(), arg());
    module.def("gpu_copy", copy, arg(), arg(), arg().none(), arg());
    module.def("gpu_add", add, arg(), arg(), arg().none(), arg());
    module.def("gpu_scale", scale, arg(), arg(), arg().none(), arg());
    module.def("gpu_unscale", unscale, arg(), arg(), arg(), arg().none(), arg());
    module.def("gpu_add_squares", add_squares, arg(), arg(), arg().none(), arg());
    module.def("gpu_clip_factor", clip_factor);
    module.def("gpu_quantise", quantise);
    module.def("gpu_dequantise", dequantise);
    module.def("gpu_sum_quantised", sum_quantised);
    module.def("gpu_adamw", adamw, arg(), arg(), arg(), arg(), arg(), arg(), arg(), arg(), arg(),
               arg(), arg(), arg().none(), arg().none(), arg().none(), arg());
    module.def("gpu_adam8bit", adam8bit, arg(), arg(), arg(), arg(), arg(), arg(), arg(), arg(),
               arg(), arg(), arg(), arg(), arg(), arg().none(), arg().none(), arg().none(), arg());
    module.def("gpu_sgd", sgd, arg(), arg(), arg().none(), arg(), arg(), arg(), arg(), arg(), arg(),
               arg(), arg(), arg().none(), arg().none(), arg().none(), arg());
    module.def("gpu_moment_block", [] { return VESCOMM_GPU_MOMENT_BLOCK; });
    module.def("gpu_sum_words", [] { return VESCOMM_GPU_SUM_WORDS; });
    module.def("gpu_clip_bytes", [] { return sizeof(vescomm_gpu_clip_t); });
}

}  // namespace vescomm::python
