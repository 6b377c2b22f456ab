// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// gpu_kernels.hpp: results, and arguments that are refused before the call, on the test double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpu/hpp_ranks.h"
#include "vescomm/gpu_kernels.hpp"

namespace vescomm {
namespace {

using namespace testing_support;
using gpu_double::Device;
using gpu_double::take_violations;

using Bits = std::vector<std::uint16_t>;

TEST(GpuKernelsHpp, ElementwiseResults) {
    Device device(0);
    gpu::check_kernels();
    float *const f = device.upload(Floats{1, 2, 3, 4});
    std::uint16_t *const b = device.upload(Bits{0x3f80, 0x4000, 0x4040, 0x4080});  // 1 to 4
    auto *const overflow = device.upload(std::vector<std::int32_t>{0});
    const gpu::Array floats(f, 4), halves(b, 4, VESCOMM_BF16);
    const vescomm_gpu_piece_t all[] = {{0, 0, 4}}, shifted[] = {{0, 2, 1}, {2, 0, 2}};

    gpu::add(floats, halves, shifted, device.stream);
    EXPECT_EQ(device.read(f, 4), (Floats{4, 2, 4, 6}));
    gpu::scale(floats, 0.5, all, device.stream);
    EXPECT_EQ(device.read(f, 4), (Floats{2, 1, 2, 3}));
    gpu::copy(halves, floats, all, device.stream);
    EXPECT_EQ(device.read(b, 4), (Bits{0x4000, 0x3f80, 0x4000, 0x4040}));
    gpu::unscale(floats, 2, overflow, all, device.stream);
    EXPECT_EQ(device.read(overflow, 1)[0], 0);
    gpu::unscale(floats, std::numeric_limits<float>::max(), overflow, all, device.stream);
    EXPECT_EQ(device.read(overflow, 1)[0], 1);
    const vescomm_gpu_piece_t middle[] = {{1, 0, 2}};
    gpu::zero(halves, middle, device.stream);
    EXPECT_EQ(device.read(b, 4), (Bits{0x4000, 0, 0, 0x4040}));
    EXPECT_EQ(take_violations(), "");
}

// Two ranks have one gradient each; the norm is that of both.
TEST(GpuKernelsHpp, AClippedStepOfTwoRanks) {
    run_hpp_ranks(2, [](HppRank &r) {
        gpu::Communicator device(r.comm);
        float *const p = r.upload(Floats{1, 1}), *const m = r.upload(Floats{0, 0});
        float *const v = r.upload(Floats{0, 0});
        const float mine = r.rank == 0 ? 3 : 4;
        const gpu::Array gradients(r.upload(Floats{0, mine}), 2);
        const gpu::Array words(r.array<std::int64_t>(VESCOMM_GPU_SUM_WORDS), VESCOMM_GPU_SUM_WORDS);
        auto *const clip = r.array<vescomm_gpu_clip_t>(1);
        const vescomm_gpu_piece_t all[] = {{0, 0, VESCOMM_GPU_SUM_WORDS}}, both[] = {{0, 0, 2}};
        auto options = vescomm_gpu_adamw_options_init();
        options.learning_rate = 0.25;
        options.weight_decay = 0;

        gpu::zero(words, all, r.stream);
        gpu::add_squares(words, gradients, both, r.stream);
        gpu::all_reduce(device, words, VESCOMM_SUM, r.stream);
        gpu::clip_factor(words, 1, 1, clip, r.stream);
        gpu::adamw({p, 2}, gradients, {m, 2}, {v, 2}, options, clip, both, r.stream);
        device.wait(r.stream);
        const vescomm_gpu_clip_t result = r.read(clip, 1)[0];
        EXPECT_EQ(result.norm, 5);
        EXPECT_EQ(result.skip, 0);
        EXPECT_NEAR(result.factor, 0.2, 1e-6);
        EXPECT_NEAR(r.read(m, 2)[1], 0.1 * 0.2 * mine, 1e-6);
        // The first step of a gradient that is not zero is the learning rate.
        EXPECT_EQ(r.read(p, 2)[0], 1);
        EXPECT_NEAR(r.read(p, 2)[1], 0.75, 1e-6);
    });
    EXPECT_EQ(take_violations(), "");
}

// A step of 2^-10 from 1, of which a bf16 is 2^-8 away below.
TEST(GpuKernelsHpp, AStepInTheTypeOfTheParameters) {
    Device device(0);
    const vescomm_gpu_piece_t all[] = {{0, 0, 4096}};
    const gpu::ConstArray gradients(device.upload(Floats(4096, 1)), 4096);
    auto options = vescomm_gpu_adamw_options_init();
    options.learning_rate = 0x1p-10;
    options.weight_decay = 0;
    for (const int stochastic : {0, 1}) {
        options.stochastic = stochastic;
        options.random_stream = 3;
        const gpu::Array parameters(device.upload(Bits(4096, 0x3f80)), 4096, VESCOMM_BF16);
        const gpu::Array m(device.array<float>(4096), 4096), v(device.array<float>(4096), 4096);
        gpu::adamw(parameters, gradients, m, v, options, nullptr, all, device.stream);
        const Bits after = device.read(parameters.as<std::uint16_t>(), 4096);
        const auto below = std::count(after.begin(), after.end(), 0x3f7f);
        EXPECT_EQ(below + std::count(after.begin(), after.end(), 0x3f80), 4096);
        // A quarter, with a deviation of 28.
        EXPECT_NEAR(static_cast<double>(below), stochastic ? 1024 : 0, stochastic ? 170 : 0);
    }
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuKernelsHpp, StepsOfSgdAndOf8bitAdamW) {
    Device device(0);
    const vescomm_gpu_piece_t shifted[] = {{1, 0, 2}};
    const gpu::ConstArray gradients(device.upload(Floats{4, -8}), 2);
    float *const p = device.upload(Floats{1, 1, 1}), *const mean = device.upload(Floats{0, 0, 2});
    auto sgd = vescomm_gpu_sgd_options_init();
    sgd.learning_rate = 0.25;
    gpu::sgd({p, 3}, gradients, {mean, 0}, sgd, nullptr, shifted, device.stream);
    EXPECT_EQ(device.read(p, 3), (Floats{1, 0, 3}));
    EXPECT_EQ(device.read(mean, 3), (Floats{0, 0, 2}));
    sgd.momentum = 0.5;
    gpu::sgd({p, 3}, gradients, {mean, 3}, sgd, nullptr, shifted, device.stream);
    EXPECT_EQ(device.read(mean, 3), (Floats{0, 4, -7}));
    EXPECT_EQ(device.read(p, 3), (Floats{1, -1, 4.75}));

    auto options = vescomm_gpu_adamw_options_init();
    options.learning_rate = 0.25;
    options.weight_decay = 0;
    const gpu::Array parameters(device.upload(Bits{0, 0x3f80, 0x3f80}), 3, VESCOMM_BF16);
    const gpu::Array m(device.upload(std::vector<std::uint8_t>(3)), 3),
        v(device.upload(std::vector<std::uint8_t>(3)), 3);
    const gpu::Array m_scales(device.array<float>(1), 1), v_scales(device.array<float>(1), 1);
    gpu::adam8bit(parameters, gradients, m, v, m_scales, v_scales, options, nullptr, shifted,
                  device.stream);
    // The first step is the learning rate.
    EXPECT_EQ(device.read(parameters.as<std::uint16_t>(), 3), (Bits{0, 0x3f40, 0x3fa0}));
    EXPECT_NEAR(device.read(m_scales.as<float>(), 1)[0], 0.1 * 8, 1e-6);
    EXPECT_NEAR(device.read(v_scales.as<float>(), 1)[0], 1e-3 * 64, 1e-6);
    EXPECT_EQ(device.read(v.as<std::uint8_t>(), 3)[2], 255);
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuKernelsHpp, CodesOfIntegersAreExact) {
    Device device(0);
    const Floats values = {127, -127, 1, 0, 254, 2};
    const gpu::ConstArray source(device.upload(values), 6);
    const gpu::Array codes(device.array<std::int8_t>(6), 6), scales(device.array<float>(2), 2);
    const gpu::Array target(device.array<float>(6), 6);
    gpu::quantise(codes, scales, source, 4, device.stream);
    EXPECT_EQ(device.read(codes.as<std::int8_t>(), 6),
              (std::vector<std::int8_t>{127, -127, 1, 0, 127, 1}));
    EXPECT_EQ(device.read(scales.as<float>(), 2), (Floats{1, 2}));
    gpu::dequantise(target, codes, scales, 4, device.stream);
    EXPECT_EQ(device.read(target.as<float>(), 6), values);
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuKernelsHpp, ContributionsAreSummed) {
    Device device(0);
    // Three elements of two sources, in blocks of two.
    const gpu::Array codes(device.upload(std::vector<std::int8_t>{1, 2, 3, 0, 10, 20, 30}), 7);
    const gpu::Array scales(device.upload(Floats{1, 2, 0.5f, 4}), 4);
    const gpu::Array target(device.upload(Floats{1, 1, 1}), 3);
    gpu::sum_quantised(target, codes, 4, scales, 2, 2, 2, 2.0f, true, device.stream);
    EXPECT_EQ(device.read(target.as<float>(), 3), (Floats{13, 25, 253}));
    gpu::sum_quantised(target, codes, 4, scales, 2, 2, 2, 1.0f, false, device.stream);
    EXPECT_EQ(device.read(target.as<float>(), 3), (Floats{6, 12, 126}));
    const auto sum = [&](std::int64_t code_stride, std::int64_t scale_stride) {
        gpu::sum_quantised(target, codes, code_stride, scales, scale_stride, 2, 2, 1, false,
                           device.stream);
    };
    expect_refused([&] { sum(5, 2); }, "codes has 2 elements, and 3 are needed");
    expect_refused([&] { sum(INT64_MAX, 2); }, "codes has 0 elements, and 3 are needed");
    expect_refused([&] { sum(4, 3); }, "scales has 1 elements, and 2 are needed");
    expect_error([&] { sum(-1, 2); }, VESCOMM_ERROR_INVALID_ARGUMENT, "code_stride is -1");
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuKernelsHpp, ArraysThatAreTooShortAreRefusedBeforeTheCall) {
    Device device(0);
    const auto stream = device.stream;
    const gpu::Array four(device.array<float>(8), 4), words(device.array<std::int64_t>(22), 22);
    const gpu::Array bytes(four.data, 4, VESCOMM_I8), one(four.data, 1, VESCOMM_F32);
    auto *const clip = device.array<vescomm_gpu_clip_t>(1);
    const auto options = vescomm_gpu_adamw_options_init();
    const vescomm_gpu_piece_t all[] = {{0, 0, 4}}, behind[] = {{0, 0, 1}, {2, 0, 3}},
                              source_behind[] = {{0, 3, 2}}, none[] = {{9, 9, 0}},
                              negative[] = {{-1, 0, 1}};
    const int before = gpu_double::calls_of("cudaLaunchKernel");
    const char *target = "3 elements from 2 on, and target has 4";
    expect_refused([&] { gpu::zero(four, behind, stream); }, target);
    expect_refused([&] { gpu::copy(four, four, behind, stream); }, target);
    expect_refused([&] { gpu::add(four, four, behind, stream); }, target);
    expect_refused([&] { gpu::scale(four, 2, behind, stream); }, target);
    expect_refused([&] { gpu::unscale(four, 2, nullptr, behind, stream); }, target);
    const char *source = "2 elements from 3 on, and source has 4";
    expect_refused([&] { gpu::copy(four, four, source_behind, stream); }, source);
    expect_refused([&] { gpu::add(four, four, source_behind, stream); }, source);
    expect_refused([&] { gpu::add_squares(words, four, behind, stream); },
                   "3 elements from 2 on, and source has 4");
    expect_refused(
        [&] {
            gpu::add_squares({words.data, 21, VESCOMM_I64}, four, all, stream);
        },
        "words has 21 elements, and 22 are needed");
    expect_refused(
        [&] {
            gpu::clip_factor({words.data, 22, VESCOMM_F64}, 1, 1, clip, stream);
        },
        "words has elements of type 4");
    expect_refused(
        [&] {
            gpu::quantise({bytes.data, 3, VESCOMM_I8}, one, four, 4, stream);
        },
        "codes has 3 elements, and 4 are needed");
    expect_refused([&] { gpu::quantise(bytes, one, four, 3, stream); },
                   "scales has 1 elements, and 2 are needed");
    expect_refused([&] { gpu::dequantise(four, bytes, bytes, 4, stream); },
                   "scales has elements of type 7");
    expect_refused([&] { gpu::adamw(four, four, one, four, options, nullptr, all, stream); },
                   "4 elements from 0 on, and m has 1");
    expect_error([&] { gpu::adamw(bytes, four, four, four, options, nullptr, all, stream); },
                 VESCOMM_ERROR_INVALID_ARGUMENT, "parameter_type is i8");
    expect_refused([&] { gpu::adamw(four, words, four, four, options, nullptr, all, stream); },
                   "gradients has elements of type 13");
    auto sgd = vescomm_gpu_sgd_options_init();
    sgd.momentum = 0.5;
    expect_refused([&] { gpu::sgd(four, four, one, sgd, nullptr, all, stream); },
                   "4 elements from 0 on, and momentum has 1");
    const gpu::Array codes(four.data, 4, VESCOMM_U8), three(four.data, 3, VESCOMM_U8);
    const vescomm_gpu_piece_t two_blocks[] = {{0, 0, 2}, {3, 0, 1}};
    const auto adam8bit = [&](gpu::Array m, gpu::Array v, gpu::Array m_scales,
                              gpu::Array v_scales) {
        gpu::adam8bit(four, four, m, v, m_scales, v_scales, options, nullptr, two_blocks, stream);
    };
    expect_refused([&] { adam8bit(bytes, codes, four, four); }, "m has elements of type 7");
    expect_refused([&] { adam8bit(codes, three, four, four); }, "and v has 3");
    expect_refused([&] { adam8bit(codes, codes, words, four); }, "m_scales has elements of type");
    expect_refused([&] { adam8bit(codes, codes, four, one); },
                   "v_scales has 1 elements, and 2 are needed");
    expect_error([&] { gpu::zero(four, negative, stream); }, VESCOMM_ERROR_INVALID_ARGUMENT, "-1");
    gpu::zero(four, none, stream);
    EXPECT_EQ(gpu_double::calls_of("cudaLaunchKernel"), before);
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm
