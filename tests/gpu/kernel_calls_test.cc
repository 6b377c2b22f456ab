// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls of gpu_kernels.h: launches, streams, graphs, wrong arguments and missing parts. The
// double finds work without a dependency, and work on bytes that do not exist.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "gpu/device_kernels.h"
#include "gpu/kernel_library.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::calls_of;
using gpu_double::fail_call;

const vescomm_gpu_piece_t four = {0, 0, 4};

int launches() {
    return calls_of("cudaLaunchKernel");
}

TEST(KernelCalls, OneLaunchHas128Pieces) {
    Device device(0);
    for (const std::int64_t n : {1, 128, 129, 300}) {
        PieceList pieces;
        for (std::int64_t k = 0; k < n; ++k) pieces.push_back({2 * k, 0, 1});
        auto *data = device.upload(std::vector<float>(static_cast<std::size_t>(2 * n), 1.0f));
        const int before = launches();
        EXPECT_OK(vescomm_gpu_zero(data, VESCOMM_F32, pieces.data(), n, device.stream));
        EXPECT_EQ(launches() - before, (n + 127) / 128);
        const auto values = device.read(data, static_cast<std::size_t>(2 * n));
        for (std::size_t k = 0; k < values.size(); ++k) EXPECT_EQ(values[k], k % 2);
    }
    EXPECT_EQ(take_violations(), "");
}

TEST(KernelCalls, NothingIsLaunchedWithoutElements) {
    Device device(0);
    const int before = launches();
    const vescomm_gpu_piece_t empty[] = {{5, 5, 0}, {5, 5, 0}};
    const auto options = vescomm_gpu_adamw_options_init();
    EXPECT_OK(vescomm_gpu_zero(nullptr, VESCOMM_F32, nullptr, 0, device.stream));
    EXPECT_OK(vescomm_gpu_zero(nullptr, VESCOMM_F32, empty, 2, device.stream));
    EXPECT_OK(
        vescomm_gpu_copy(nullptr, VESCOMM_F32, nullptr, VESCOMM_F32, empty, 2, device.stream));
    EXPECT_OK(vescomm_gpu_quantise(nullptr, nullptr, VESCOMM_I8, nullptr, VESCOMM_F32, 0, 32,
                                   device.stream));
    EXPECT_OK(vescomm_gpu_dequantise(nullptr, VESCOMM_F32, nullptr, nullptr, VESCOMM_I8, 0, 32,
                                     device.stream));
    EXPECT_OK(vescomm_gpu_adamw(nullptr, nullptr, nullptr, nullptr, &options, nullptr, empty, 2,
                                device.stream));
    EXPECT_EQ(launches(), before);
}

// Mutation: no event between the stream that writes and that of the kernel.
TEST(KernelCalls, TheDoubleFindsAMissingStreamDependency) {
    for (const bool ordered : {true, false}) {
        Device device(0);
        cuda::Stream second = nullptr;
        CUevent_st *event = nullptr;
        ASSERT_EQ(cudaStreamCreateWithFlags(&second, 1), 0);
        ASSERT_EQ(cudaEventCreateWithFlags(&event, 2), 0);
        auto *a = device.upload(std::vector<float>{1, 2, 3, 4});
        auto *b = device.upload(std::vector<float>{1, 1, 1, 1});
        EXPECT_OK(vescomm_gpu_scale(b, VESCOMM_F32, 10, &four, 1, device.stream));
        cudaEventRecord(event, device.stream);
        if (ordered) cudaStreamWaitEvent(second, event, 0);
        EXPECT_OK(vescomm_gpu_add(a, VESCOMM_F32, b, VESCOMM_F32, &four, 1, second));
        cudaStreamSynchronize(second);
        if (ordered) {
            EXPECT_EQ(device.read(a, 4), (std::vector<float>{11, 12, 13, 14}));
            EXPECT_EQ(take_violations(), "");
        } else {
            EXPECT_THAT_VIOLATION(
                "kernel_2_add reads .* without a stream dependency on vescomm_gpu_kernel_2_scale");
        }
        cudaStreamDestroy(second);
        cudaEventDestroy(event);
    }
}

// Other bytes of the same memory are not in conflict: the double knows the pieces of a launch.
TEST(KernelCalls, PiecesApartNeedNoDependency) {
    Device device(0);
    cuda::Stream second = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&second, 1), 0);
    auto *a = device.upload(std::vector<float>(12, 1.0f));
    const vescomm_gpu_piece_t even[] = {{0, 0, 4}, {8, 0, 4}}, odd = {4, 0, 4};
    EXPECT_OK(vescomm_gpu_zero(a, VESCOMM_F32, even, 2, device.stream));
    EXPECT_OK(vescomm_gpu_scale(a, VESCOMM_F32, 2, &odd, 1, second));
    gpu_double::cudaDeviceSynchronize();
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(device.read(a, 12), (std::vector<float>{0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0}));
    cudaStreamDestroy(second);
}

TEST(KernelCalls, TheDoubleFindsFreedMemoryAndOverruns) {
    Device device(0);
    void *memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, 12), 0);
    EXPECT_OK(vescomm_gpu_zero(memory, VESCOMM_F32, &four, 1, device.stream));
    gpu_double::cudaDeviceSynchronize();
    EXPECT_THAT_VIOLATION("kernel_2_zero writes bytes 0 to 16 of allocation .* of 12 bytes");
    auto *floats = device.upload(std::vector<float>(8));
    auto options = vescomm_gpu_adamw_options_init();
    options.parameter_type = VESCOMM_BF16;
    const auto step = [&](std::int64_t count) {
        const vescomm_gpu_piece_t piece = {0, 0, count};
        EXPECT_OK(vescomm_gpu_adamw(memory, floats, floats, floats, &options, nullptr, &piece, 1,
                                    device.stream));
        gpu_double::cudaDeviceSynchronize();
    };
    step(6);
    EXPECT_EQ(take_violations(), "");
    step(7);
    EXPECT_THAT_VIOLATION("adamw_narrow writes bytes 0 to 14 of allocation .* of 12 bytes");
    ASSERT_EQ(cudaFree(memory), 0);
    EXPECT_OK(vescomm_gpu_zero(memory, VESCOMM_U8, &four, 1, device.stream));
    gpu_double::cudaDeviceSynchronize();
    EXPECT_THAT_VIOLATION("which is freed");
}

TEST(KernelCalls, GraphsReplayAWholeStep) {
    Device device(0);
    EXPECT_OK(vescomm_gpu_check_kernels());
    auto *p = device.upload(std::vector<float>(4, 1.0f)), *g = device.upload(std::vector<float>(4));
    auto *m = device.upload(std::vector<float>(4)), *v = device.upload(std::vector<float>(4));
    auto *batch = device.upload(std::vector<float>(4, 2.0f));
    auto *words = device.array<std::int64_t>(VESCOMM_GPU_SUM_WORDS);
    auto *clip = device.array<vescomm_gpu_clip_t>(1);
    const vescomm_gpu_piece_t all = {0, 0, VESCOMM_GPU_SUM_WORDS};
    const auto options = vescomm_gpu_adamw_options_init();
    const auto stream = device.stream;
    CUgraph_st *graph = nullptr;
    CUgraphExec_st *exec = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream, 0), 0);
    EXPECT_OK(vescomm_gpu_zero(g, VESCOMM_F32, &four, 1, stream));
    EXPECT_OK(vescomm_gpu_zero(words, VESCOMM_I64, &all, 1, stream));
    EXPECT_OK(vescomm_gpu_add(g, VESCOMM_F32, batch, VESCOMM_F32, &four, 1, stream));
    EXPECT_OK(vescomm_gpu_add_squares(words, g, VESCOMM_F32, &four, 1, stream));
    EXPECT_OK(vescomm_gpu_clip_factor(words, 1, 1, clip, stream));
    EXPECT_OK(vescomm_gpu_adamw(p, g, m, v, &options, clip, &four, 1, stream));
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), 0);
    ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
    EXPECT_EQ(device.read(p, 1)[0], 1) << "captured work does not run";
    float before = 1;
    for (int i = 0; i < 3; ++i) {
        cudaGraphLaunch(exec, stream);
        const float after = device.read(p, 1)[0];
        EXPECT_LT(after, before);
        before = after;
    }
    const auto found = device.read(clip, 1)[0];
    EXPECT_EQ(found.norm, 4) << "each launch begins with a sum of zero";
    EXPECT_EQ(found.factor, static_cast<float>(1 / (4 + 1e-6)));
    EXPECT_EQ(found.skip, 0);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    EXPECT_EQ(take_violations(), "");
}

// ---- errors ----

void expect_error(vescomm_status_t found, vescomm_status_t status, const std::string &text) {
    EXPECT_EQ(found, status);
    const std::string sentence = vescomm_get_last_error();
    EXPECT_NE(sentence.find(text), std::string::npos) << sentence;
}
#define EXPECT_INVALID(call, text) expect_error(call, VESCOMM_ERROR_INVALID_ARGUMENT, text)

TEST(KernelCalls, WrongArgumentsAreNamed) {
    Device device(0);
    auto *a = device.upload(std::vector<float>(8));
    auto *words = device.array<std::int64_t>(VESCOMM_GPU_SUM_WORDS);
    auto *clip = device.array<vescomm_gpu_clip_t>(1);
    auto *bytes = device.array<std::uint8_t>(64);
    const auto stream = device.stream;
    const int before = launches();
    const auto zero = [&](const PieceList &pieces) {
        return vescomm_gpu_zero(a, VESCOMM_F32, pieces.data(), count_of(pieces), stream);
    };
    EXPECT_INVALID(zero({{0, 0, -1}}), "piece 0 has target 0, source 0 and count -1");
    EXPECT_INVALID(zero({{-4, 0, 1}}), "must be 0 or more");
    EXPECT_INVALID(zero({{0, 0, 4}, {3, 0, 1}}), "the piece before ends at 4");
    EXPECT_INVALID(zero({{0, 0, INT64_C(1) << 40}, {INT64_C(1) << 41, 0, 1}}), "2^40");
    EXPECT_INVALID(zero({{INT64_MAX, 0, 1}}), "at most 2^59");
    EXPECT_INVALID(vescomm_gpu_zero(a, 0, &four, 1, stream), "is no type of elements");
    EXPECT_INVALID(vescomm_gpu_zero(a, VESCOMM_F32, nullptr, 1, stream), "pieces is NULL");
    EXPECT_INVALID(vescomm_gpu_zero(a, VESCOMM_F32, &four, -1, stream), "piece_count is -1");
    EXPECT_INVALID(vescomm_gpu_zero(nullptr, VESCOMM_F32, &four, 1, stream), "target is NULL");
    EXPECT_INVALID(vescomm_gpu_zero(bytes + 2, VESCOMM_F32, &four, 1, stream),
                   "target is not aligned to its elements of 4 bytes");
    EXPECT_INVALID(vescomm_gpu_copy(a, VESCOMM_BF16, a, VESCOMM_F16, &four, 1, stream),
                   "cannot convert from f16 to bf16");
    EXPECT_INVALID(vescomm_gpu_copy(a, VESCOMM_I32, a, VESCOMM_F32, &four, 1, stream),
                   "cannot convert from f32 to i32");
    EXPECT_INVALID(vescomm_gpu_add(a, VESCOMM_BF16, a, VESCOMM_F64, &four, 1, stream),
                   "cannot add f64 to bf16");
    EXPECT_INVALID(vescomm_gpu_scale(a, VESCOMM_I32, 2, &four, 1, stream), "is not a float");
    EXPECT_INVALID(vescomm_gpu_unscale(a, VESCOMM_F32, 2, nullptr, &four, 1, stream),
                   "overflow is NULL");
    EXPECT_INVALID(vescomm_gpu_add_squares(words, a, VESCOMM_F64, &four, 1, stream),
                   "the type is f64");
    EXPECT_INVALID(vescomm_gpu_clip_factor(words, INFINITY, 1, clip, stream),
                   "scale is inf; it must be finite");
    EXPECT_INVALID(vescomm_gpu_clip_factor(words, 1, 1, nullptr, stream), "result is NULL");
    EXPECT_INVALID(vescomm_gpu_quantise(bytes, a, VESCOMM_U8, a, VESCOMM_F32, 4, 4, stream),
                   "must be i8");
    EXPECT_INVALID(vescomm_gpu_quantise(bytes, a, VESCOMM_I8, a, VESCOMM_F32, 4, 0, stream),
                   "block is 0");
    EXPECT_INVALID(vescomm_gpu_dequantise(a, VESCOMM_F32, bytes, a, VESCOMM_I8, -1, 4, stream),
                   "count is -1");
    auto options = vescomm_gpu_adamw_options_init();
    options.step = 0;
    EXPECT_INVALID(vescomm_gpu_adamw(a, a, a, a, &options, nullptr, &four, 1, stream),
                   "step is 0; steps count from 1");
    options.step = 1;
    options.beta2 = 1;
    EXPECT_INVALID(vescomm_gpu_adamw(a, a, a, a, &options, nullptr, &four, 1, stream), "beta2 is");
    options.beta2 = 0.9;
    options.parameter_type = VESCOMM_F64;
    EXPECT_INVALID(vescomm_gpu_adamw(a, a, a, a, &options, nullptr, &four, 1, stream),
                   "parameter_type is f64; it must be f32, bf16 or f16");
    options.parameter_type = 0;
    options.stochastic = 1;
    EXPECT_INVALID(vescomm_gpu_adamw(a, a, a, a, &options, nullptr, &four, 1, stream),
                   "stochastic is not 0, but the parameters are f32");
    options.parameter_type = VESCOMM_BF16;
    EXPECT_INVALID(vescomm_gpu_adamw(bytes + 1, a, a, a, &options, nullptr, &four, 1, stream),
                   "parameters is not aligned to its elements of 2 bytes");
    EXPECT_INVALID(vescomm_gpu_adamw(a, a, a, a, nullptr, nullptr, &four, 1, stream),
                   "options is NULL");
    EXPECT_EQ(launches(), before);
    EXPECT_EQ(take_violations(), "");
}

TEST(KernelCalls, AFailedLaunchIsReportedOnce) {
    Device device(0);
    auto *a = device.upload(std::vector<float>(4, 1.0f));
    EXPECT_OK(vescomm_gpu_check_kernels());
    gpu_double::cudaGetLastError();
    fail_call("cudaLaunchKernel", 0, 700);
    expect_error(
        vescomm_gpu_zero(a, VESCOMM_F32, &four, 1, device.stream), VESCOMM_ERROR_SYSTEM,
        "could not launch vescomm_gpu_kernel_2_zero in 1 blocks: an illegal memory access");
    EXPECT_EQ(gpu_double::cudaGetLastError(), 0) << "vescomm has reported it";
    EXPECT_OK(vescomm_gpu_zero(a, VESCOMM_F32, &four, 1, device.stream));
    EXPECT_EQ(device.read(a, 4), std::vector<float>(4));
}

// Loads the kernels anew, as a process does that has none yet.
std::string loading_error() {
    try {
        KernelLibrary(examine_gpu_support()).preload();
        return {};
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_UNSUPPORTED);
        return error.what();
    }
}

TEST(KernelCalls, MissingPartsAreNamed) {
    Device device(0);
    const auto says = [](const std::string &text) {
        const std::string sentence = loading_error();
        EXPECT_NE(sentence.find(text), std::string::npos) << sentence;
    };
    EXPECT_EQ(loading_error(), "");
    fail_call("cudaLibraryLoadData", 0, 222);
    says("CUDA cannot load the kernels of vescomm (");
    const int before = gpu_double::loaded_libraries();
    fail_call("cudaLibraryGetKernel", 2, 500);
    says("lack vescomm_gpu_kernel_2_cast");
    EXPECT_EQ(gpu_double::loaded_libraries(), before) << "the library is unloaded";
    fail_call("cudaLibraryGetKernel", 0, 500);
    fail_call("cudaLibraryUnload", 0, 999);
    says("unrecognized error code");
    EXPECT_EQ(gpu_double::cudaGetLastError(), 0) << "the error of the unload is cleared";
    fail_call("cudaFuncGetAttributes", 0, 209);
    says("on the current device");
    fail_call("cudaGetDeviceCount", 0, cuda::no_device);
    says("shows no GPU to this process");
    const char *given = std::getenv("VESCOMM_GPU_KERNELS");
    const std::string file = given != nullptr ? given : "";
    setenv("VESCOMM_GPU_KERNELS", "/nonexistent/kernels", 1);
    says("/nonexistent/kernels, which VESCOMM_GPU_KERNELS names, cannot be read");
    setenv("VESCOMM_GPU_KERNELS", "/", 1);  // a folder can be opened, but not read
    says("/, which VESCOMM_GPU_KERNELS names, cannot be read");
    unsetenv("VESCOMM_GPU_KERNELS");
    if (embedded_kernels().empty()) says("this build of vescomm has no kernels");
    else EXPECT_EQ(loading_error(), "");
    if (!file.empty()) setenv("VESCOMM_GPU_KERNELS", file.c_str(), 1);
    EXPECT_EQ(take_violations(), "");
}

// CUDA permits no loading during a capture: vescomm relaxes the capture for it.
TEST(KernelCalls, KernelsLoadDuringACapture) {
    Device device(0);
    CUgraph_st *graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(device.stream, 0), 0);
    EXPECT_EQ(loading_error(), "");
    ASSERT_EQ(cudaStreamEndCapture(device.stream, &graph), 0);
    cudaGraphDestroy(graph);
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm::internal
