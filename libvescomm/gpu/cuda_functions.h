// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The types, constants and functions of the CUDA runtime that vescomm uses, in declarations of its
// own: neither build nor tests need CUDA's headers. The binary interface is that of CUDA 12 and 13.
// tests/gpu/declarations_test.cc compares it with CUDA's headers where they are installed.
// Decision: docs/design/0027-gpu-libraries-are-found-at-run-time.md.
#pragma once

#include <cstddef>

// Opaque types of CUDA, with CUDA's names, so that pointers of programs and of this library agree.
struct CUstream_st;
struct CUevent_st;
struct CUlib_st;
struct CUkern_st;
struct cudaFuncAttributes;

namespace vescomm::internal::cuda {

using Error = int;  // cudaError_t
using Stream = CUstream_st *;  // cudaStream_t
using Event = CUevent_st *;  // cudaEvent_t
using Library = CUlib_st *;  // cudaLibrary_t
using Kernel = CUkern_st *;  // cudaKernel_t

// dim3
struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
};

inline constexpr Error success = 0;
inline constexpr Error invalid_value = 1;
inline constexpr Error memory_allocation = 2;
inline constexpr Error insufficient_driver = 35;
inline constexpr Error no_device = 100;
inline constexpr Error not_ready = 600;
inline constexpr Error capture_unsupported = 900;
inline constexpr Error capture_implicit = 906;

// cudaMemcpyKind
inline constexpr int copy_host_to_device = 1;
inline constexpr int copy_device_to_host = 2;
inline constexpr int copy_device_to_device = 3;

// cudaStreamCaptureStatus
inline constexpr int capture_none = 0;
inline constexpr int capture_active = 1;
inline constexpr int capture_invalidated = 2;

inline constexpr unsigned host_mapped = 2;  // of cudaHostAlloc()
inline constexpr unsigned stream_non_blocking = 1;  // of cudaStreamCreateWithFlags()
inline constexpr unsigned event_disable_timing = 2;  // of cudaEventCreateWithFlags()

// cudaStreamCaptureMode
inline constexpr int capture_mode_relaxed = 2;

// The functions of the CUDA runtime that vescomm calls: symbol, member of Runtime, parameters.
#define VESCOMM_CUDA_FUNCTIONS(X)                                                           \
    X(cudaGetDeviceCount, get_device_count, (int *count))                                   \
    X(cudaGetDevice, get_device, (int *device))                                             \
    X(cudaSetDevice, set_device, (int device))                                              \
    X(cudaRuntimeGetVersion, runtime_get_version, (int *version))                           \
    X(cudaDriverGetVersion, driver_get_version, (int *version))                             \
    X(cudaMemcpyAsync, memcpy_async,                                                        \
      (void *target, const void *source, std::size_t bytes, int kind, Stream stream))       \
    X(cudaStreamQuery, stream_query, (Stream stream))                                       \
    X(cudaStreamIsCapturing, stream_is_capturing, (Stream stream, int *status))             \
    X(cudaThreadExchangeStreamCaptureMode, exchange_capture_mode, (int *mode))              \
    X(cudaDeviceSynchronize, device_synchronize, ())                                        \
    X(cudaStreamCreateWithFlags, stream_create, (Stream * stream, unsigned flags))          \
    X(cudaStreamDestroy, stream_destroy, (Stream stream))                                   \
    X(cudaStreamWaitEvent, stream_wait_event, (Stream stream, Event event, unsigned flags)) \
    X(cudaEventCreateWithFlags, event_create, (Event * event, unsigned flags))              \
    X(cudaEventRecord, event_record, (Event event, Stream stream))                          \
    X(cudaEventDestroy, event_destroy, (Event event))                                       \
    X(cudaHostAlloc, host_alloc, (void **pointer, std::size_t bytes, unsigned flags))       \
    X(cudaFreeHost, free_host, (void *pointer))                                             \
    X(cudaGetLastError, get_last_error, ())

// The functions that load and launch kernels, which early releases of CUDA 12 lack.
#define VESCOMM_CUDA_LOAD_FUNCTIONS(X)                                           \
    X(cudaLibraryLoadData, library_load_data,                                    \
      (Library * library, const void *code, int *jit_options, void **jit_values, \
       unsigned jit_count, int *options, void **values, unsigned count))         \
    X(cudaLibraryUnload, library_unload, (Library library))                      \
    X(cudaLibraryGetKernel, library_get_kernel,                                  \
      (Kernel * kernel, Library library, const char *name))                      \
    X(cudaFuncGetAttributes, func_get_attributes,                                \
      (cudaFuncAttributes * attributes, const void *kernel))
// cudaLaunchKernel() takes a cudaKernel_t as the function.
#define VESCOMM_CUDA_KERNEL_FUNCTIONS(X)                                                 \
    VESCOMM_CUDA_LOAD_FUNCTIONS(X)                                                       \
    X(cudaLaunchKernel, launch_kernel,                                                   \
      (const void *kernel, Dim3 grid, Dim3 block, void **parameters, std::size_t shared, \
       Stream stream))

inline constexpr std::size_t max_attributes_bytes = 1024;  // of a cudaFuncAttributes

// Loaded functions. All of them return cudaError_t, except get_error_string().
struct Runtime {
#define VESCOMM_MEMBER(symbol, member, parameters) Error(*member) parameters;
    VESCOMM_CUDA_FUNCTIONS(VESCOMM_MEMBER)
#undef VESCOMM_MEMBER
    const char *(*get_error_string)(Error error);  // cudaGetErrorString
};

struct KernelFunctions {
#define VESCOMM_MEMBER(symbol, member, parameters) Error(*member) parameters;
    VESCOMM_CUDA_KERNEL_FUNCTIONS(VESCOMM_MEMBER)
#undef VESCOMM_MEMBER
};

}  // namespace vescomm::internal::cuda
