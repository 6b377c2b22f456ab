// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Exact norms, clipping, quantisation and AdamW of gpu_kernels.h have the bits of the FSDP engine
// on host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <utility>

#include "fsdp/adamw.h"
#include "fsdp/norm/exact_sum.h"
#include "fsdp/quantise/block_quantise.h"
#include "gpu/device_kernels.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

constexpr vescomm_type_t small_types[] = {VESCOMM_F32, VESCOMM_BF16, VESCOMM_F16};
constexpr std::size_t elements = 30000;

// ---- norms ----

// Finite elements of any bits.
Bytes finite_bits(vescomm_type_t type, std::size_t count, unsigned seed) {
    Bytes bytes = any_bits(type, count, seed);
    for (std::size_t i = 0; i < count; ++i) {
        float x = 0;
        std::uint8_t *at = bytes.data() + i * size_of(type);
        kernels().convert(&x, VESCOMM_F32, at, type, 1);
        if (!std::isfinite(x)) std::memset(at, 0, size_of(type));
    }
    return bytes;
}

struct Sum {
    std::vector<std::int64_t> words;  // normalised
    vescomm_gpu_clip_t clip;
};

Sum sum_on_device(Device &device, const Bytes &source, vescomm_type_t type,
                  const std::vector<PieceList> &calls, double scale, double max_norm) {
    auto *from = device.upload(source);
    auto *words = device.array<std::int64_t>(VESCOMM_GPU_SUM_WORDS);
    auto *clip = device.array<vescomm_gpu_clip_t>(1);
    const vescomm_gpu_piece_t all = {0, 0, VESCOMM_GPU_SUM_WORDS};
    EXPECT_OK(vescomm_gpu_zero(words, VESCOMM_I64, &all, 1, device.stream));
    for (const PieceList &pieces : calls)
        EXPECT_OK(vescomm_gpu_add_squares(words, from, type, pieces.data(), count_of(pieces),
                                          device.stream));
    EXPECT_OK(vescomm_gpu_clip_factor(words, scale, max_norm, clip, device.stream));
    return {device.read(words, VESCOMM_GPU_SUM_WORDS), device.read(clip, 1)[0]};
}

fsdp::ExactSum sum_on_host(const Bytes &source, vescomm_type_t type, const PieceList &pieces) {
    fsdp::ExactSum sum;
    for (const auto &piece : pieces)
        sum.add_squares(source.data() + static_cast<std::size_t>(piece.target) * size_of(type),
                        type, static_cast<std::size_t>(piece.count));
    return sum;
}

TEST(NormKernels, SumsAreTheExactOnesInAnyOrder) {
    const PieceList pieces = ragged_pieces(elements);
    const PieceList first(pieces.begin(), pieces.begin() + 5),
        second(pieces.begin() + 5, pieces.end());
    std::vector<std::vector<PieceList>> all_calls(3);
    all_calls[0].push_back(pieces);
    all_calls[1] = {first, second};
    all_calls[2] = {second, first};
    in_both_orders([&] {
        Device device(0);
        for (const vescomm_type_t type : small_types)
            for (const Bytes &source : {finite_bits(type, elements, 1), any_bits(type, elements, 2),
                                        plain_floats(type, elements, 3), Bytes(elements * 4)}) {
                SCOPED_TRACE(name_of_type(type));
                const fsdp::ExactSum sum = sum_on_host(source, type, pieces);
                const std::vector<std::int64_t> words(sum.words().begin(), sum.words().end());
                for (const std::vector<PieceList> &calls : all_calls) {
                    const Sum found = sum_on_device(device, source, type, calls, 1, 0);
                    EXPECT_EQ(found.words, words);
                    const double norm = std::sqrt(sum.value());
                    EXPECT_EQ(std::bit_cast<std::uint64_t>(found.clip.norm),
                              std::bit_cast<std::uint64_t>(norm));
                }
            }
    });
}

// Elements in the range of exponents that a thread adds, beside others.
TEST(NormKernels, SumsAreExactWhereverElementsLie) {
    using Value = std::function<double(std::size_t i, double random)>;
    const std::vector<std::pair<const char *, Value>> distributions = {
        {"zeros among others", [](std::size_t i, double r) { return i % 3 == 0 ? r : 0; }},
        {"growing",
         [](std::size_t i, double r) { return std::ldexp(r, static_cast<int>(i / 200)); }},
        {"falling",
         [](std::size_t i, double r) { return std::ldexp(r, -static_cast<int>(i / 200)); }},
        {"zeros, then large",
         [](std::size_t i, double r) { return i % 8192 < 4096 ? 0 : r * 1e4; }},
        {"some small", [](std::size_t i, double r) { return i % 5 == 0 ? r * 1e-7 : r; }},
        {"some large", [](std::size_t i, double r) { return i % 7 == 0 ? r * 3e7 : r; }},
        {"near overflow", [](std::size_t, double r) { return r * 3e38; }},
        {"subnormal", [](std::size_t i, double r) { return r * (i % 2 == 0 ? 1e-44 : 1e-38); }},
        {"some infinite", [](std::size_t i, double r) { return i % 1001 == 1000 ? r / 0.0 : r; }},
    };
    in_both_orders([&] {
        Device device(0);
        const PieceList pieces = ragged_pieces(elements);
        for (const vescomm_type_t type : small_types)
            for (const auto &[name, value] : distributions) {
                SCOPED_TRACE(name_of_type(type) + std::string(": ") + name);
                std::mt19937 random(7);
                std::uniform_real_distribution<double> unit(-1, 1);
                Bytes source(elements * size_of(type)), widened(elements * sizeof(float));
                for (std::size_t i = 0; i < elements; ++i) {
                    const auto x = static_cast<float>(value(i, unit(random)));
                    std::uint8_t *at = source.data() + i * size_of(type);
                    kernels().convert(at, type, &x, VESCOMM_F32, 1);
                    kernels().convert(widened.data() + i * sizeof(float), VESCOMM_F32, at, type, 1);
                }
                const fsdp::ExactSum sum = sum_on_host(widened, VESCOMM_F32, pieces);
                const std::vector<std::int64_t> words(sum.words().begin(), sum.words().end());
                EXPECT_EQ(sum_on_device(device, source, type, {pieces}, 1, 0).words, words);
            }
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(NormKernels, ClippingFollowsTheFormulaOfTheEngine) {
    Device device(0);
    const PieceList all = {{0, 0, 4}};
    const auto clip = [&](std::vector<float> values, double scale, double max_norm) {
        Bytes bytes(16);
        std::memcpy(bytes.data(), values.data(), 16);
        return sum_on_device(device, bytes, VESCOMM_F32, {all}, scale, max_norm).clip;
    };
    for (const double scale : {1.0, -0.5, 1.0 / 3, 1e-40, 1e40, 0.0})
        for (const double max_norm : {0.0, 0.1, 1.0, 1e6})
            for (const std::vector<float> &values : {std::vector<float>{3, 4, 0, 0},
                                                     {1e-30f, 0, 0, 0},
                                                     {3e38f, 1, 2, 3},
                                                     {INFINITY, 0, 0, 0},
                                                     {NAN, INFINITY, 0, 0},
                                                     {0, 0, 0, 0}}) {
                fsdp::ExactSum sum;
                sum.add_squares(values.data(), VESCOMM_F32, 4);
                const double norm = std::sqrt(sum.value()) * std::fabs(scale);
                const double factor =
                    scale * (max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0);
                const double size = std::fabs(factor);
                const bool usable =
                    std::isfinite(norm) &&
                    (scale == 0 || (size >= std::numeric_limits<float>::min() &&
                                    size <= std::numeric_limits<float>::max() &&
                                    norm * (factor / scale) <= std::numeric_limits<float>::max()));
                const vescomm_gpu_clip_t found = clip(values, scale, max_norm);
                EXPECT_EQ(found.skip, usable ? 0 : 1) << scale << ' ' << max_norm << ' ' << norm;
                if (!std::isnan(norm)) {
                    EXPECT_EQ(found.norm, norm);
                }
                if (usable) {
                    EXPECT_EQ(found.factor, static_cast<float>(factor));
                }
            }
    EXPECT_EQ(take_violations(), "");
}

// ---- quantisation ----

TEST(QuantiseKernels, CodesAndValuesHaveTheBitsOfTheHost) {
    in_both_orders([&] {
        Device device(0);
        for (const vescomm_type_t type : small_types)
            for (const auto code : {fsdp::CodeType::int8, fsdp::CodeType::f8e4m3})
                for (const std::size_t block : {1u, 2u, 7u, 31u, 32u, 128u, 1000u, 8192u, 9001u})
                    for (const std::size_t n : {1u, 8u, 33u, 20001u}) {
                        SCOPED_TRACE(name_of_type(type) + ", block " + std::to_string(block) +
                                     ", count " + std::to_string(n));
                        const vescomm_type_t code_type =
                            code == fsdp::CodeType::int8 ? VESCOMM_I8 : VESCOMM_F8E4M3;
                        // One block in about eight has an infinity or a NaN.
                        Bytes source = finite_bits(type, n, 4);
                        const Bytes odd = any_bits(type, n / 8, 5);
                        std::ranges::copy(odd, source.begin());
                        const std::size_t blocks = fsdp::blocks_of(n, block);
                        Bytes codes(n + 1, 0xa5);
                        std::vector<float> scales(blocks + 1, 123.0f);
                        fsdp::quantise(code, source.data(), type, n, block, codes.data(),
                                       scales.data());
                        auto *from = device.upload(source);
                        auto *to = device.upload(Bytes(n + 1, 0xa5));
                        auto *factors = device.upload(std::vector<float>(blocks + 1, 123.0f));
                        const auto count = static_cast<std::int64_t>(n);
                        EXPECT_OK(vescomm_gpu_quantise(to, factors, code_type, from, type, count,
                                                       static_cast<std::int64_t>(block),
                                                       device.stream));
                        EXPECT_EQ(device.read(to, n + 1), codes);
                        const auto found = device.read(factors, blocks + 1);
                        EXPECT_EQ(std::memcmp(found.data(), scales.data(), 4 * blocks + 4), 0);

                        Bytes values(n * size_of(type));
                        fsdp::dequantise(code, codes.data(), scales.data(), n, block, values.data(),
                                         type);
                        auto *back = device.array<std::uint8_t>(values.size());
                        EXPECT_OK(vescomm_gpu_dequantise(back, type, to, factors, code_type, count,
                                                         static_cast<std::int64_t>(block),
                                                         device.stream));
                        EXPECT_EQ(device.read(back, values.size()), values);
                    }
    });
}

// Any bytes are codes, and any floats scales.
TEST(QuantiseKernels, DequantiseAllCodes) {
    Device device(0);
    const Bytes scale_bits = any_bits(VESCOMM_F32, 1000, 6);
    std::vector<float> scales(1000);
    std::memcpy(scales.data(), scale_bits.data(), scale_bits.size());
    const Bytes codes = any_bits(VESCOMM_U8, 3000, 7);
    auto *from = device.upload(codes);
    auto *factors = device.upload(scales);
    for (const vescomm_type_t type : small_types)
        for (const auto code : {fsdp::CodeType::int8, fsdp::CodeType::f8e4m3}) {
            Bytes values(3000 * size_of(type));
            fsdp::dequantise(code, codes.data(), scales.data(), 3000, 3, values.data(), type);
            auto *to = device.array<std::uint8_t>(values.size());
            EXPECT_OK(vescomm_gpu_dequantise(
                to, type, from, factors, code == fsdp::CodeType::int8 ? VESCOMM_I8 : VESCOMM_F8E4M3,
                3000, 3, device.stream));
            EXPECT_EQ(device.read(to, values.size()), values);
        }
    EXPECT_EQ(take_violations(), "");
}

// ---- AdamW ----

std::vector<float> floats(const Bytes &bytes) {
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

Bytes bits(const std::vector<float> &values) {
    Bytes bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

TEST(AdamWKernel, HasTheBitsOfTheHost) {
    const PieceList pieces = ragged_pieces(elements);
    const std::size_t gradients = source_elements(pieces);
    in_both_orders([&] {
        for (const bool odd : {false, true})  // any bits
            for (const double beta1 : {0.0, 0.3, 0.9})
                for (const vescomm_gpu_clip_t clip :
                     {vescomm_gpu_clip_t{}, {1, 0.37f, 0}, {1, 0.37f, 1}}) {
                    Device device(0);
                    const bool clipped = clip.norm != 0;
                    const auto make = [&](std::size_t n, unsigned seed) {
                        return floats(odd ? any_bits(VESCOMM_F32, n, seed)
                                          : plain_floats(VESCOMM_F32, n, seed));
                    };
                    auto p = make(elements, 1), m = make(elements, 2), v = make(elements, 3);
                    const auto g = make(gradients, 4);
                    if (!odd)
                        for (float &x : v) x = std::fabs(x);
                    auto *dp = device.upload(p), *dm = device.upload(m), *dv = device.upload(v);
                    auto *dg = device.upload(g);
                    auto *dc = device.upload(std::vector{clip});
                    auto options = vescomm_gpu_adamw_options_init();
                    options.gradient_scale = 1.25f;
                    options.beta1 = beta1;
                    for (std::int64_t step = 1; step <= 3; ++step) {
                        options.step = step;
                        EXPECT_OK(vescomm_gpu_adamw(dp, dg, dm, dv, &options,
                                                    clipped ? dc : nullptr, pieces.data(),
                                                    count_of(pieces), device.stream));
                        if (clipped && clip.skip != 0) continue;
                        const fsdp::AdamWStep same{options.learning_rate,
                                                   options.beta1,
                                                   options.beta2,
                                                   options.epsilon,
                                                   options.weight_decay,
                                                   clipped ? clip.factor : options.gradient_scale,
                                                   step};
                        for (const auto &piece : pieces)
                            fsdp::adamw(p.data() + piece.target, g.data() + piece.source,
                                        m.data() + piece.target, v.data() + piece.target,
                                        static_cast<std::size_t>(piece.count), same);
                    }
                    EXPECT_EQ(bits(device.read(dp, elements)), bits(p));
                    EXPECT_EQ(bits(device.read(dm, elements)), bits(m));
                    EXPECT_EQ(bits(device.read(dv, elements)), bits(v));
                    EXPECT_EQ(bits(device.read(dg, gradients)), bits(g));
                }
    });
}

}  // namespace
}  // namespace vescomm::internal
