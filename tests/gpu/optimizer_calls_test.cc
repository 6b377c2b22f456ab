// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls of SGD and 8-bit AdamW of gpu_kernels.h: launches, wrong arguments, and the bytes that
// the double expects them to access.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

#include "gpu/device_kernels.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using Floats = std::vector<float>;

int launches() {
    return gpu_double::calls_of("cudaLaunchKernel");
}

TEST(OptimizerCalls, OneLaunchHas128Pieces) {
    Device device(0);
    PieceList pieces;
    for (std::int64_t k = 0; k < 300; ++k) pieces.push_back({2 * k, 0, 1});
    auto *p = device.upload(Floats(600)), *g = device.upload(Floats(1));
    auto *m = device.upload(Bytes(600)), *v = device.upload(Bytes(600));
    auto *m_scales = device.upload(Floats(300)), *v_scales = device.upload(Floats(300));
    const auto adamw = vescomm_gpu_adamw_options_init();
    const auto sgd = vescomm_gpu_sgd_options_init();
    for (const std::int64_t n : {1, 128, 129, 300}) {
        int before = launches();
        EXPECT_OK(vescomm_gpu_adam8bit(p, g, m, v, m_scales, v_scales, &adamw, nullptr,
                                       pieces.data(), n, device.stream));
        EXPECT_EQ(launches() - before, (n + 127) / 128);
        before = launches();
        EXPECT_OK(vescomm_gpu_sgd(p, g, nullptr, &sgd, nullptr, pieces.data(), n, device.stream));
        EXPECT_EQ(launches() - before, (n + 127) / 128);
    }
    gpu_double::cudaDeviceSynchronize();
    EXPECT_EQ(take_violations(), "");
}

TEST(OptimizerCalls, TheDoubleKnowsTheBytesOfMoments) {
    Device device(0);
    const vescomm_gpu_piece_t pieces[] = {{0, 0, 257}, {300, 0, 1}};
    auto *p = device.upload(Floats(301)), *g = device.upload(Floats(257));
    auto *m = device.upload(Bytes(301)), *v = device.upload(Bytes(301));
    const auto options = vescomm_gpu_adamw_options_init();
    for (const std::size_t scales : {3, 2}) {
        auto *m_scales = device.upload(Floats(3)), *v_scales = device.upload(Floats(scales));
        EXPECT_OK(vescomm_gpu_adam8bit(p, g, m, v, m_scales, v_scales, &options, nullptr, pieces, 2,
                                       device.stream));
        gpu_double::cudaDeviceSynchronize();
        const std::string violations = take_violations();
        if (scales == 3) EXPECT_EQ(violations, "");
        else
            EXPECT_NE(violations.find("adam8bit writes bytes 0 to 12 of allocation"),
                      std::string::npos)
                << violations;
    }
}

TEST(OptimizerCalls, WrongArgumentsOfAdam8bitAreNamed) {
    Device device(0);
    const vescomm_gpu_piece_t all = {0, 0, 4}, none = {7, 7, 0},
                              huge = {0, 0, (std::int64_t{1} << 38) + 1};
    auto *a = device.upload(Floats(8)), *b = device.upload(Floats(8));
    auto *c = device.upload(Bytes(8)), *d = device.upload(Bytes(8));
    const int before = gpu_double::calls_of("cudaLaunchKernel");
    auto options = vescomm_gpu_adamw_options_init();
    const auto expect_refused = [&](std::uint8_t *m, std::uint8_t *v, float *m_scales,
                                    float *v_scales, const vescomm_gpu_piece_t &piece,
                                    const std::string &text) {
        EXPECT_EQ(vescomm_gpu_adam8bit(a, b, m, v, m_scales, v_scales, &options, nullptr, &piece, 1,
                                       device.stream),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        const std::string sentence = vescomm_get_last_error();
        EXPECT_NE(sentence.find("vescomm_gpu_adam8bit: " + text), std::string::npos) << sentence;
    };
    expect_refused(nullptr, d, a, b, all, "m is NULL");
    expect_refused(c, nullptr, a, b, all, "v is NULL");
    expect_refused(c, d, nullptr, b, all, "m_scales is NULL");
    expect_refused(c, d, a, reinterpret_cast<float *>(d + 1), all, "v_scales is not aligned");
    expect_refused(c, d, a, b, huge, "the pieces have 274877906945 elements; they must have");
    options.beta2 = 1;
    expect_refused(c, d, a, b, all, "beta2 is 1");
    options = vescomm_gpu_adamw_options_init();
    options.parameter_type = VESCOMM_F64;
    expect_refused(c, d, a, b, all, "parameter_type is f64");
    options = vescomm_gpu_adamw_options_init();
    EXPECT_OK(vescomm_gpu_adam8bit(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, &options,
                                   nullptr, &none, 1, device.stream));
    EXPECT_EQ(gpu_double::calls_of("cudaLaunchKernel"), before);
    EXPECT_EQ(take_violations(), "");
}

vescomm_gpu_sgd_options_t settings(double momentum, double dampening, bool nesterov, double decay,
                                   bool decoupled) {
    auto options = vescomm_gpu_sgd_options_init();
    options.momentum = momentum;
    options.dampening = dampening;
    options.nesterov = nesterov ? 1 : 0;
    options.weight_decay = decay;
    options.decoupled = decoupled ? 1 : 0;
    return options;
}

TEST(OptimizerCalls, WrongSettingsOfSgdAreNamed) {
    Device device(0);
    const vescomm_gpu_piece_t all = {0, 0, 4}, none = {7, 7, 0};
    auto *a = device.upload(Floats(8)), *b = device.upload(Floats(8));
    const int before = gpu_double::calls_of("cudaLaunchKernel");
    const auto expect_refused = [&](const vescomm_gpu_sgd_options_t &options, float *momentum,
                                    const std::string &text) {
        EXPECT_EQ(vescomm_gpu_sgd(a, b, momentum, &options, nullptr, &all, 1, device.stream),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        const std::string sentence = vescomm_get_last_error();
        EXPECT_NE(sentence.find("vescomm_gpu_sgd: " + text), std::string::npos) << sentence;
    };
    expect_refused(settings(-1, 0, false, 0, false), a, "momentum is -1");
    expect_refused(settings(INFINITY, 0, false, 0, false), a, "momentum is inf");
    expect_refused(settings(0.9, NAN, false, 0, false), a, "dampening is nan; it must be finite");
    expect_refused(settings(0.9, 0, false, -0.1, false), a, "weight_decay is -0.1");
    expect_refused(settings(0, 0, true, 0, false), a, "nesterov needs a momentum above 0");
    expect_refused(settings(0.9, 0.1, true, 0, false), a, "nesterov needs a momentum above 0");
    expect_refused(settings(0.9, 0, false, 0, false), nullptr, "momentum is NULL");
    auto options = settings(0.9, 0, false, 0, false);
    options.step = 0;
    expect_refused(options, a, "step is 0; steps count from 1");
    options = settings(0.9, 0, false, 0, false);
    options.stochastic = 1;
    expect_refused(options, a, "stochastic is not 0, but the parameters are f32");
    options.parameter_type = VESCOMM_I8;
    expect_refused(options, a, "parameter_type is i8");
    options = settings(0.9, 0, false, 0, false);
    EXPECT_EQ(
        vescomm_gpu_sgd(nullptr, nullptr, nullptr, &options, nullptr, &none, 1, device.stream),
        VESCOMM_OK);
    EXPECT_EQ(gpu_double::calls_of("cudaLaunchKernel"), before);
    EXPECT_EQ(take_violations(), "");
}

// A program that was built with an older struct.
TEST(OptimizerCalls, SgdReadsAShorterStructAsF32) {
    Device device(0);
    const vescomm_gpu_piece_t all = {0, 0, 5};
    auto *p = device.upload(Floats(5, 1)), *g = device.upload(Floats(5, 1));
    auto options = settings(0, 0, false, 0, false);
    options.parameter_type = 77;
    options.struct_size = offsetof(vescomm_gpu_sgd_options_t, parameter_type);
    EXPECT_OK(vescomm_gpu_sgd(p, g, nullptr, &options, nullptr, &all, 1, device.stream));
    EXPECT_EQ(device.read(p, 5), Floats(5, 1 - 1e-3f));
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm::internal
