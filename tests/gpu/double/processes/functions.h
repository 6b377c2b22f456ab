// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The double for ranks that are processes. A program that is started by gpu_double_run finds
// libcudart.so.13 and libnccl.so.2 of this folder, which pass each call on to the double in the
// process of gpu_double_run. Each thread of the program has a connection, and a thread there, which
// makes its calls. So all rules of gpu_double.h are checked between the streams of all processes.
//
//     rank 0: threads ─┐                      ┌─ thread for each
//     rank 1: threads ─┼─ sockets ─ gpu_double_run ─ double: streams, device memory, NCCL
//     rank 2: threads ─┘
//
// Pinned memory is shared, and has the same addresses in all processes. Device memory is in
// gpu_double_run only. The work of a process ends with it, and other ranks wait for ever for its
// part of collectives, as on GPUs.
#pragma once

#include <cstdint>

// The functions whose parameters are values, opaque addresses, and places of results.
#define GPU_DOUBLE_FORWARDED(X)            \
    X(cudaGetLastError)                    \
    X(cudaGetDeviceCount)                  \
    X(cudaGetDevice)                       \
    X(cudaSetDevice)                       \
    X(cudaRuntimeGetVersion)               \
    X(cudaDriverGetVersion)                \
    X(cudaStreamQuery)                     \
    X(cudaStreamIsCapturing)               \
    X(cudaThreadExchangeStreamCaptureMode) \
    X(cudaDeviceSynchronize)               \
    X(cudaStreamCreateWithFlags)           \
    X(cudaStreamDestroy)                   \
    X(cudaStreamSynchronize)               \
    X(cudaStreamWaitEvent)                 \
    X(cudaEventCreateWithFlags)            \
    X(cudaEventRecord)                     \
    X(cudaEventDestroy)                    \
    X(cudaEventQuery)                      \
    X(cudaEventSynchronize)                \
    X(cudaHostAlloc)                       \
    X(cudaFreeHost)                        \
    X(cudaMalloc)                          \
    X(cudaFree)                            \
    X(cudaMemsetAsync)                     \
    X(cudaStreamBeginCapture)              \
    X(cudaStreamEndCapture)                \
    X(cudaGraphInstantiateWithFlags)       \
    X(cudaGraphLaunch)                     \
    X(cudaGraphExecDestroy)                \
    X(cudaGraphDestroy)                    \
    X(cudaLibraryUnload)                   \
    X(cudaLibraryGetKernel)                \
    X(cudaFuncGetAttributes)               \
    X(gpu_double_calls_of)                 \
    X(ncclGetVersion)                      \
    X(ncclGetUniqueId)                     \
    X(ncclCommInitRankConfig)              \
    X(ncclCommFinalize)                    \
    X(ncclCommDestroy)                     \
    X(ncclCommAbort)                       \
    X(ncclCommRevoke)                      \
    X(ncclCommGetAsyncError)               \
    X(ncclCommCount)                       \
    X(ncclCommUserRank)                    \
    X(ncclCommCuDevice)                    \
    X(ncclCommSplit)                       \
    X(ncclMemAlloc)                        \
    X(ncclMemFree)                         \
    X(ncclCommWindowRegister)              \
    X(ncclCommWindowDeregister)            \
    X(ncclGetPeerDevicePointer)            \
    X(ncclCommRegister)                    \
    X(ncclCommDeregister)                  \
    X(ncclGroupStart)                      \
    X(ncclGroupEnd)                        \
    X(ncclAllGather)                       \
    X(ncclReduceScatter)                   \
    X(ncclAllReduce)                       \
    X(ncclBroadcast)                       \
    X(ncclReduce)                          \
    X(ncclSend)                            \
    X(ncclRecv)

// Those with arrays, texts and host memory, and questions of the libraries of this folder.
#define GPU_DOUBLE_SPECIAL(X) \
    X(cudaMemcpyAsync)        \
    X(cudaLibraryLoadData)    \
    X(cudaLaunchKernel)       \
    X(cudaGetErrorString)     \
    X(ncclCommShrink)         \
    X(ncclGetErrorString)     \
    X(ncclGetLastError)       \
    X(parameter_bytes) /* of a kernel */

namespace gpu_double::processes {

enum class Function : std::uint32_t {
#define GPU_DOUBLE_NAME(function) function,
    GPU_DOUBLE_FORWARDED(GPU_DOUBLE_NAME) GPU_DOUBLE_SPECIAL(GPU_DOUBLE_NAME)
#undef GPU_DOUBLE_NAME
        the_thread_ends  // the last message of a connection, without an answer
};

// The environment: the socket of gpu_double_run.
inline constexpr const char *socket_variable = "GPU_DOUBLE_SOCKET";

// The first message of a connection.
struct Hello {
    std::uint32_t process = 0;  // number of the process of a thread; 0: a process asks for one
};
// The answer. The connection of a process has no further message, and ends with the process.
struct Welcome {
    std::uint32_t process = 0;
    std::int32_t server = 0;  // process id of gpu_double_run
    std::int32_t pinned_file = 0;  // its file descriptor of the pinned memory
    std::uint64_t pinned = 0, pinned_bytes = 0;  // addresses
    std::uint64_t device = 0, device_bytes = 0;
};

}  // namespace gpu_double::processes
