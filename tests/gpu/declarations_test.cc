// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares vescomm's declarations of CUDA and NCCL with the headers of these. It is built only
// where the headers are installed.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "gpu/cuda_functions.h"
#include "gpu/nccl_functions.h"

// The header has another cudaHostAlloc() for C++, so the address of the name is not unique.
using HostAlloc = cudaError_t(void **, std::size_t, unsigned);
constexpr HostAlloc *host_alloc = &::cudaHostAlloc;
HostAlloc only_host_alloc;
#define cudaHostAlloc only_host_alloc

namespace vescomm::internal {
namespace {

// Enumerations are passed as int.
template <typename T>
struct Plain {
    using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <typename T>
requires std::is_enum_v<T>
struct Plain<T *> {
    using type = int *;
};
template <>
struct Plain<ncclUniqueId> {
    using type = nccl::UniqueId;
};
template <>
struct Plain<ncclUniqueId *> {
    using type = nccl::UniqueId *;
};
template <>
struct Plain<ncclConfig_t *> {
    using type = nccl::Config *;
};
template <>
struct Plain<dim3> {
    using type = cuda::Dim3;
};
template <typename Function>
struct PlainFunction;
template <typename Result, typename... Parameters>
struct PlainFunction<Result (*)(Parameters...)> {
    using type = typename Plain<Result>::type (*)(typename Plain<Parameters>::type...);
};

// The header has overloads of cudaLaunchKernel() for C++.
using LaunchKernel = cudaError_t (*)(const void *, dim3, dim3, void **, std::size_t, cudaStream_t);
constexpr LaunchKernel launch_kernel = &::cudaLaunchKernel;
static_assert(std::is_same_v<typename PlainFunction<LaunchKernel>::type,
                             decltype(cuda::KernelFunctions::launch_kernel)>);

#define CHECK_SIGNATURE(symbol, member, parameters)                                 \
    static_assert(std::is_same_v<typename PlainFunction<decltype(&::symbol)>::type, \
                                 decltype(Functions::member)>,                      \
                  #symbol);
namespace of_cuda {
using Functions = cuda::Runtime;
VESCOMM_CUDA_FUNCTIONS(CHECK_SIGNATURE)
}  // namespace of_cuda
namespace of_kernels {
using Functions = cuda::KernelFunctions;
VESCOMM_CUDA_LOAD_FUNCTIONS(CHECK_SIGNATURE)
}  // namespace of_kernels
namespace of_nccl {
using Functions = nccl::Library;
VESCOMM_NCCL_FUNCTIONS(CHECK_SIGNATURE)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
VESCOMM_NCCL_OPTIONAL_FUNCTIONS(CHECK_SIGNATURE)
#endif
}  // namespace of_nccl

static_assert(sizeof(cudaError_t) == sizeof(int) && sizeof(ncclResult_t) == sizeof(int));
static_assert(sizeof(cuda::Dim3) == sizeof(dim3));
static_assert(sizeof(cudaFuncAttributes) <= cuda::max_attributes_bytes);
static_assert(cuda::success == cudaSuccess && cuda::invalid_value == cudaErrorInvalidValue);
static_assert(cuda::memory_allocation == cudaErrorMemoryAllocation);
static_assert(cuda::insufficient_driver == cudaErrorInsufficientDriver);
static_assert(cuda::no_device == cudaErrorNoDevice && cuda::not_ready == cudaErrorNotReady);
static_assert(cuda::capture_unsupported == cudaErrorStreamCaptureUnsupported);
static_assert(cuda::capture_implicit == cudaErrorStreamCaptureImplicit);
static_assert(cuda::capture_mode_relaxed == cudaStreamCaptureModeRelaxed);
static_assert(cuda::copy_host_to_device == cudaMemcpyHostToDevice);
static_assert(cuda::copy_device_to_host == cudaMemcpyDeviceToHost);
static_assert(cuda::copy_device_to_device == cudaMemcpyDeviceToDevice);
static_assert(cuda::capture_none == cudaStreamCaptureStatusNone);
static_assert(cuda::capture_active == cudaStreamCaptureStatusActive);
static_assert(cuda::capture_invalidated == cudaStreamCaptureStatusInvalidated);

static_assert(nccl::success == ncclSuccess && nccl::unhandled_cuda_error == ncclUnhandledCudaError);
static_assert(nccl::system_error == ncclSystemError && nccl::internal_error == ncclInternalError);
static_assert(nccl::invalid_argument == ncclInvalidArgument);
static_assert(nccl::invalid_usage == ncclInvalidUsage && nccl::remote_error == ncclRemoteError);
static_assert(nccl::in_progress == ncclInProgress);
static_assert(nccl::i8 == ncclInt8 && nccl::u8 == ncclUint8 && nccl::i32 == ncclInt32);
static_assert(nccl::u32 == ncclUint32 && nccl::i64 == ncclInt64 && nccl::u64 == ncclUint64);
static_assert(nccl::f16 == ncclFloat16 && nccl::f32 == ncclFloat32 && nccl::f64 == ncclFloat64);
static_assert(nccl::bf16 == ncclBfloat16 && nccl::f8e4m3 == ncclFloat8e4m3);
static_assert(nccl::f8e5m2 == ncclFloat8e5m2);
static_assert(nccl::sum == ncclSum && nccl::prod == ncclProd && nccl::max == ncclMax);
static_assert(nccl::min == ncclMin && nccl::average == ncclAvg);
static_assert(nccl::window_symmetric == NCCL_WIN_COLL_SYMMETRIC);
static_assert(nccl::no_color == NCCL_SPLIT_NOCOLOR);
static_assert(nccl::shrink_default == NCCL_SHRINK_DEFAULT);
static_assert(nccl::shrink_abort == NCCL_SHRINK_ABORT);
static_assert(nccl::window_alignment == NCCL_WIN_REQUIRED_ALIGNMENT);
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));

// Later headers append members.
static_assert(nccl::oldest_config_bytes <= sizeof(ncclConfig_t));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(nccl::Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(nccl::Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(nccl::Config, comm_name) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(nccl::Config, cta_policy) == offsetof(ncclConfig_t, CTAPolicy));
static_assert(offsetof(nccl::Config, nvlink_centric_sched) ==
              offsetof(ncclConfig_t, nvlinkCentricSched));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 5)
static_assert(offsetof(nccl::Config, graph_usage_mode) == offsetof(ncclConfig_t, graphUsageMode));
static_assert(offsetof(nccl::Config, rma_contexts) == offsetof(ncclConfig_t, numRmaCtx));
static_assert(offsetof(nccl::Config, max_p2p_peers) == offsetof(ncclConfig_t, maxP2pPeers));
static_assert(offsetof(nccl::Config, graph_stream_ordering) ==
              offsetof(ncclConfig_t, graphStreamOrdering));
#elif NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)
static_assert(nccl::oldest_config_bytes == sizeof(ncclConfig_t));
#endif

TEST(GpuDeclarations, TheDefaultConfigurationIsThatOfNccl) {
    const nccl::Config ours;
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    const std::size_t members = offsetof(nccl::Config, blocking);
    EXPECT_EQ(std::memcmp(reinterpret_cast<const char *>(&ours) + members,
                          reinterpret_cast<const char *>(&theirs) + members,
                          offsetof(nccl::Config, nvlink_centric_sched) + sizeof(int) - members),
              0);
    EXPECT_EQ(ours.magic, theirs.magic);
#if NCCL_VERSION_CODE == 22809
    EXPECT_EQ(ours.size, theirs.size);
    EXPECT_EQ(ours.version, theirs.version);
#endif
}

}  // namespace
}  // namespace vescomm::internal
