// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA runtime in a program that gpu_double_run has started.
#include <map>

#include "gpu/double/processes/client.h"

using namespace gpu_double;
using processes::Answer;
using processes::ask;
using processes::Function;
using processes::Writer;

namespace {

// As much of an image of kernels as the double examines.
constexpr std::size_t image_bytes = 18;

// Bytes of the parameters of a kernel.
std::size_t parameter_bytes(const void *kernel) {
    struct Known {
        std::mutex mutex;
        std::map<const void *, std::size_t> bytes;  // by kernel
    };
    static Known *const known = new Known;
    const std::lock_guard<std::mutex> lock(known->mutex);
    const auto [found, is_new] = known->bytes.try_emplace(kernel, 0);
    if (is_new) {
        Writer call;
        call.put(kernel);
        found->second = ask(Function::parameter_bytes, call).rest.get<std::size_t>();
    }
    return found->second;
}

}  // namespace

extern "C" {

int cudaGetLastError() {
    FORWARD(cudaGetLastError);
}
int cudaGetDeviceCount(int *count) {
    FORWARD(cudaGetDeviceCount, count);
}
int cudaGetDevice(int *device) {
    FORWARD(cudaGetDevice, device);
}
int cudaSetDevice(int device) {
    processes::keep_device(device);
    FORWARD(cudaSetDevice, device);
}
int cudaRuntimeGetVersion(int *version) {
    FORWARD(cudaRuntimeGetVersion, version);
}
int cudaDriverGetVersion(int *version) {
    FORWARD(cudaDriverGetVersion, version);
}
const char *cudaGetErrorString(int error) {
    return processes::text_of(Function::cudaGetErrorString, error);
}

int cudaMalloc(void **pointer, std::size_t bytes) {
    FORWARD(cudaMalloc, pointer, bytes);
}
int cudaFree(void *pointer) {
    FORWARD(cudaFree, pointer);
}
int cudaHostAlloc(void **pointer, std::size_t bytes, unsigned flags) {
    FORWARD(cudaHostAlloc, pointer, bytes, flags);
}
int cudaFreeHost(void *pointer) {
    FORWARD(cudaFreeHost, pointer);
}
int cudaMemsetAsync(void *target, int value, std::size_t bytes, CUstream_st *stream) {
    if (!processes::is_shared(target)) return cuda::invalid_value;
    FORWARD(cudaMemsetAsync, target, value, bytes, stream);
}

// Bytes of memory that gpu_double_run cannot access travel with the call or with its answer. The
// latter waits for the stream, as CUDA does for such a target.
int cudaMemcpyAsync(void *target, const void *source, std::size_t bytes, int, CUstream_st *stream) {
    const bool takes = !processes::is_shared(target);
    const bool gives = !processes::is_shared(source);
    if (takes && gives) return cuda::invalid_value;
    Writer call;
    call.put(bytes);
    call.put(stream);
    call.put(takes ? nullptr : target);
    call.put(gives ? nullptr : source);
    if (gives) call.put_bytes(source, bytes);
    Answer answer = ask(Function::cudaMemcpyAsync, call);
    if (takes && answer.result == cuda::success)
        std::memcpy(target, answer.rest.get_bytes().data(), bytes);
    return answer.result;
}
int cudaMemcpy(void *target, const void *source, std::size_t bytes, int kind) {
    const int error = cudaMemcpyAsync(target, source, bytes, kind, nullptr);
    return error != cuda::success ? error : cudaStreamSynchronize(nullptr);
}

int cudaStreamCreateWithFlags(CUstream_st **stream, unsigned flags) {
    FORWARD(cudaStreamCreateWithFlags, stream, flags);
}
int cudaStreamDestroy(CUstream_st *stream) {
    FORWARD(cudaStreamDestroy, stream);
}
int cudaStreamSynchronize(CUstream_st *stream) {
    FORWARD(cudaStreamSynchronize, stream);
}
int cudaStreamQuery(CUstream_st *stream) {
    FORWARD(cudaStreamQuery, stream);
}
int cudaStreamWaitEvent(CUstream_st *stream, CUevent_st *event, unsigned flags) {
    FORWARD(cudaStreamWaitEvent, stream, event, flags);
}
int cudaDeviceSynchronize() {
    FORWARD(cudaDeviceSynchronize);
}
int cudaEventCreateWithFlags(CUevent_st **event, unsigned flags) {
    FORWARD(cudaEventCreateWithFlags, event, flags);
}
int cudaEventRecord(CUevent_st *event, CUstream_st *stream) {
    FORWARD(cudaEventRecord, event, stream);
}
int cudaEventQuery(CUevent_st *event) {
    FORWARD(cudaEventQuery, event);
}
int cudaEventSynchronize(CUevent_st *event) {
    FORWARD(cudaEventSynchronize, event);
}
int cudaEventDestroy(CUevent_st *event) {
    FORWARD(cudaEventDestroy, event);
}

int cudaStreamBeginCapture(CUstream_st *stream, int mode) {
    FORWARD(cudaStreamBeginCapture, stream, mode);
}
int cudaStreamEndCapture(CUstream_st *stream, CUgraph_st **graph) {
    FORWARD(cudaStreamEndCapture, stream, graph);
}
int cudaStreamIsCapturing(CUstream_st *stream, int *status) {
    FORWARD(cudaStreamIsCapturing, stream, status);
}
int cudaThreadExchangeStreamCaptureMode(int *mode) {
    FORWARD(cudaThreadExchangeStreamCaptureMode, mode);
}
int cudaGraphInstantiateWithFlags(CUgraphExec_st **exec, CUgraph_st *graph,
                                  unsigned long long flags) {
    FORWARD(cudaGraphInstantiateWithFlags, exec, graph, flags);
}
int cudaGraphLaunch(CUgraphExec_st *exec, CUstream_st *stream) {
    FORWARD(cudaGraphLaunch, exec, stream);
}
int cudaGraphExecDestroy(CUgraphExec_st *exec) {
    FORWARD(cudaGraphExecDestroy, exec);
}
int cudaGraphDestroy(CUgraph_st *graph) {
    FORWARD(cudaGraphDestroy, graph);
}

int cudaLibraryLoadData(CUlib_st **library, const void *code, int *, void **, unsigned, int *,
                        void **, unsigned) {
    Writer call;
    call.put_bytes(code, image_bytes);
    Answer answer = ask(Function::cudaLibraryLoadData, call);
    *library = answer.rest.get<CUlib_st *>();
    return answer.result;
}
int cudaLibraryUnload(CUlib_st *library) {
    FORWARD(cudaLibraryUnload, library);
}
int cudaLibraryGetKernel(CUkern_st **kernel, CUlib_st *library, const char *name) {
    FORWARD(cudaLibraryGetKernel, kernel, library, name);
}
int cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel) {
    FORWARD(cudaFuncGetAttributes, attributes, kernel);
}
int cudaLaunchKernel(const void *kernel, cuda::Dim3 grid, cuda::Dim3 block, void **parameters,
                     std::size_t, CUstream_st *stream) {
    Writer call;
    call.put(kernel);
    call.put(grid);
    call.put(block);
    call.put(stream);
    call.put_bytes(parameters[0], parameter_bytes(kernel));
    return ask(Function::cudaLaunchKernel, call).result;
}

int gpu_double_calls_of(const char *function) {
    FORWARD(gpu_double_calls_of, function);
}

}  // extern "C"
