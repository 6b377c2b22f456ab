// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/engine/device/cuda.h"

#include <dlfcn.h>

#include <cstring>

#include "fsdp/error.h"
#include "gpu/gpu_libraries.h"
#include "gpu/relaxed_capture.h"
#include "vescomm/gpu.h"

namespace vescomm::fsdp::device {

namespace {

constexpr unsigned non_blocking = 1;  // cudaStreamNonBlocking

template <typename Function>
void find(void *library, const char *symbol, Function *&function) {
    function = reinterpret_cast<Function *>(dlsym(library, symbol));
    if (function == nullptr)
        throw Failure(VESCOMM_ERROR_UNSUPPORTED,
                      fmt::format("the CUDA runtime lacks {}(): it is too old", symbol));
}

Functions load() {
    if (const vescomm_status_t status = vescomm_gpu_check_support(nullptr); status != VESCOMM_OK)
        throw Failure(status, vescomm_get_last_error());
    void *library = nullptr;
    for (const std::string &name : internal::GpuLibraryNames().cuda)
        if (library == nullptr) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr)
        throw Failure(VESCOMM_ERROR_UNSUPPORTED,
                      "the CUDA runtime was loaded, and cannot be opened again");
    Functions functions{};
    find(library, "cudaGetDevice", functions.get_device);
    find(library, "cudaMalloc", functions.malloc);
    find(library, "cudaFree", functions.free);
    find(library, "cudaHostAlloc", functions.host_alloc);
    find(library, "cudaFreeHost", functions.free_host);
    find(library, "cudaMemsetAsync", functions.memset_async);
    find(library, "cudaMemcpyAsync", functions.memcpy_async);
    find(library, "cudaDeviceSynchronize", functions.device_synchronize);
    find(library, "cudaStreamCreateWithFlags", functions.stream_create);
    find(library, "cudaStreamDestroy", functions.stream_destroy);
    find(library, "cudaStreamSynchronize", functions.stream_synchronize);
    find(library, "cudaStreamQuery", functions.stream_query);
    find(library, "cudaStreamIsCapturing", functions.stream_is_capturing);
    find(library, "cudaStreamWaitEvent", functions.stream_wait_event);
    find(library, "cudaEventCreateWithFlags", functions.event_create);
    find(library, "cudaEventRecord", functions.event_record);
    find(library, "cudaEventQuery", functions.event_query);
    find(library, "cudaEventDestroy", functions.event_destroy);
    find(library, "cudaThreadExchangeStreamCaptureMode", functions.exchange_capture_mode);
    find(library, "cudaGetLastError", functions.get_last_error);
    find(library, "cudaGetErrorString", functions.get_error_string);
    return functions;
}

// True if the answer to a query is that all work is complete.
bool complete(cuda::Error answer, const char *call) {
    if (answer == cuda::not_ready) {
        functions().get_last_error();
        return false;
    }
    require(answer, call);
    return true;
}

}  // namespace

const Functions &functions() {
    static const Functions functions = load();
    return functions;
}

void require(cuda::Error error, const char *call) {
    if (error == cuda::success) return;
    functions().get_last_error();
    throw Failure(
        error == cuda::memory_allocation ? VESCOMM_ERROR_OUT_OF_MEMORY : VESCOMM_ERROR_SYSTEM,
        fmt::format("{} failed: {}", call, functions().get_error_string(error)));
}

void refuse_captured(cuda::Stream stream) {
    int status = cuda::capture_none;
    const cuda::Error answer = functions().stream_is_capturing(stream, &status);
    if (answer == cuda::capture_implicit) {
        functions().get_last_error();
        refuse(
            "the default stream cannot be waited for while a stream that it waits for is "
            "captured into a graph; end the capture first");
    }
    require(answer, "cudaStreamIsCapturing()");
    if (status != cuda::capture_none)
        refuse(
            "a stream cannot be waited for while it is captured into a graph; end the capture "
            "first");
}

bool is_complete(cuda::Stream stream) {
    const internal::RelaxedCapture relaxed(functions());
    return complete(functions().stream_query(stream), "cudaStreamQuery()");
}

Event::Event() {
    require(functions().event_create(&event_, cuda::event_disable_timing),
            "cudaEventCreateWithFlags()");
}

Event::~Event() {
    if (event_ != nullptr) functions().event_destroy(event_);
}

void Event::record(cuda::Stream stream) {
    require(functions().event_record(event_, stream), "cudaEventRecord()");
}

void Event::wait_on(cuda::Stream stream) const {
    require(functions().stream_wait_event(stream, event_, 0), "cudaStreamWaitEvent()");
}

bool Event::reached() const {
    const internal::RelaxedCapture relaxed(functions());
    return complete(functions().event_query(event_), "cudaEventQuery()");
}

Stream::Stream() {
    require(functions().stream_create(&stream_, non_blocking), "cudaStreamCreateWithFlags()");
}

Stream::~Stream() {
    functions().stream_destroy(stream_);
}

Bytes::Bytes(std::size_t bytes, Place place, const Allocator &allocator)
    : place_(place), allocator_(allocator) {
    if (bytes == 0) return;
    const internal::RelaxedCapture relaxed(functions());
    if (place_ == Place::pinned) {
        require(functions().host_alloc(&data_, bytes, cuda::host_mapped), "cudaHostAlloc()");
        size_ = bytes;
        std::memset(data_, 0, bytes);
        return;
    }
    if (allocator_.of_program()) data_ = allocator_.allocate(bytes);
    else require(functions().malloc(&data_, bytes), "cudaMalloc()");
    size_ = bytes;
    const Stream stream;
    try {
        require(functions().memset_async(data_, 0, bytes, stream),
                allocator_.of_program()
                    ? "cudaMemsetAsync() of memory that the allocator has returned, which must be "
                      "memory of the current device,"
                    : "cudaMemsetAsync()");
        require(functions().stream_synchronize(stream), "cudaStreamSynchronize()");
    } catch (...) {
        free();
        throw;
    }
}

Bytes::~Bytes() {
    if (data_ != nullptr) free();
}

void Bytes::free() noexcept {
    const internal::RelaxedCapture relaxed(functions());
    if (place_ == Place::pinned) {
        functions().free_host(data_);
    } else if (allocator_.of_program()) {
        functions().device_synchronize();  // as cudaFree()
        allocator_.free(static_cast<std::byte *>(data_), size_);
    } else functions().free(data_);
}

}  // namespace vescomm::fsdp::device
