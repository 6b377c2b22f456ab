// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA runtime. The environment describes the machine:
//
//     GPU_DOUBLE_DEVICES   number of devices (16)
//     GPU_DOUBLE_DRIVER    version of CUDA that the driver supports (13000); 0: there is no driver
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "gpu/double/streams.h"

namespace gpu_double {
namespace {

constexpr int runtime_version = 13000;

int number_from(const char *variable, int fallback) {
    const char *text = std::getenv(variable);
    return text != nullptr ? std::atoi(text) : fallback;
}

int devices() {
    return number_from("GPU_DOUBLE_DEVICES", 16);
}
int driver() {
    return number_from("GPU_DOUBLE_DRIVER", runtime_version);
}

struct Failure {
    std::string function;
    int skip = 0, result = 0;
    std::thread::id thread;  // whose calls count; none: of all
};
// Nothing is called under the lock. Never destroyed: threads use them until the process ends.
struct Notes {
    std::mutex mutex;
    std::vector<Failure> failures;
    std::map<std::string, int> calls;
    std::string violations;
    void (*strict_end)() = nullptr;
};
Notes &notes() {
    static Notes *const all = new Notes;
    return *all;
}
thread_local cuda::Error last_error = cuda::success;
using NoteLock = std::lock_guard<std::mutex>;

char *view(const void *address) {
    return state().memory.contains(address) ? state().memory.view(address)
                                            : static_cast<char *>(const_cast<void *>(address));
}

// A wait of the host: not within a group of NCCL, and not during a capture.
cuda::Error check_wait(const char *function) {
    if (state().wait_check != nullptr)
        if (const std::string why = state().wait_check(); !why.empty())
            violation(std::string(function) + ": " + why);
    return unsafe_call(function);
}

cuda::Error copy(void *target, const void *source, std::size_t bytes, cuda::Stream stream) {
    const auto move = [=] {
        if (bytes > 0) std::memmove(view(target), view(source), bytes);
    };
    return enqueue(
        stream, "cudaMemcpyAsync", {{source, bytes, false}, {target, bytes, true}},
        [=] { return move; }, any_device);
}

// Waits for the work of a stream so far.
cuda::Error synchronize(cuda::Stream handle, const char *function) {
    std::shared_ptr<Point> point;
    int device = 0;
    {
        const Lock lock(state().mutex);
        CUstream_st *stream = stream_of(handle);
        if (stream == nullptr) return invalid_handle;
        if (stream->capture) {
            stream->capture->invalid = true;
            violation(std::string(function) + " of a stream that is captured");
            return capture_unsupported;
        }
        if (const cuda::Error error = check_wait(function)) return error;
        if (handle == nullptr)
            if (const cuda::Error error = legacy_call(function)) return error;
        order_with_legacy(*stream);
        device = stream->device;
        point = mark(*stream);
    }
    return wait_on_host(point, device);
}

}  // namespace

std::string take_violations() {
    {
        const Lock lock(state().mutex);
        state().failed.clear();
        forget_complete_work();
    }
    const NoteLock lock(notes().mutex);
    return std::exchange(notes().violations, {});
}

void violation(const std::string &sentence) {
    const NoteLock lock(notes().mutex);
    notes().violations += sentence + "\n";
    const char *strict = std::getenv("GPU_DOUBLE_STRICT");
    if (strict == nullptr || *strict == 0) return;
    std::fprintf(stderr, "gpu double: %s\n", sentence.c_str());
    if (notes().strict_end != nullptr) notes().strict_end();
    std::_Exit(70);
}

void set_strict_end(void (*end)()) {
    const NoteLock lock(notes().mutex);
    notes().strict_end = end;
}

cuda::Error noted(cuda::Error error) {
    if (error != cuda::success) last_error = error;
    return error;
}

double patience_seconds() {
    return number_from("GPU_DOUBLE_SECONDS", 20);
}

void fail_call(const std::string &function, int skip, int result, bool own) {
    const NoteLock lock(notes().mutex);
    if (function.empty()) notes().failures.clear();
    else
        notes().failures.push_back(
            {function, skip, result, own ? std::this_thread::get_id() : std::thread::id()});
}

int injected_result(const char *function) {
    const NoteLock lock(notes().mutex);
    ++notes().calls[function];
    std::vector<Failure> &failures = notes().failures;
    for (auto failure = failures.begin(); failure != failures.end(); ++failure) {
        if (failure->function != function) continue;
        if (failure->thread != std::thread::id() && failure->thread != std::this_thread::get_id())
            continue;
        if (failure->skip-- > 0) return 0;
        const int result = failure->result;
        failures.erase(failure);
        return result;
    }
    return 0;
}

int calls_of(const std::string &function) {
    const NoteLock lock(notes().mutex);
    return notes().calls[function];
}

extern "C" int gpu_double_calls_of(const char *function) {
    return calls_of(function);
}

void forget_calls() {
    const NoteLock lock(notes().mutex);
    notes().calls.clear();
}

void *host_view(const void *address) {
    return view(address);
}

bool is_device_address(const void *address) {
    return state().memory.contains(address);
}

cuda::Error launch(cuda::Stream stream, const std::string &name,
                   const std::vector<Access> &accesses, std::function<void()> work) {
    return enqueue(
        stream, name, accesses, [work = std::move(work)] { return work; }, current_device());
}

void *allocate(std::size_t bytes, bool of_nccl) {
    const Lock lock(state().mutex);
    return state().memory.allocate(bytes, of_nccl, current_device());
}

bool release(void *pointer, bool of_nccl) {
    const Lock lock(state().mutex);
    Allocation *allocation = state().memory.find(pointer);
    if (allocation == nullptr || allocation->begin != pointer) return false;
    if (allocation->freed || allocation->of_nccl != of_nccl) {
        violation(allocation->freed ? "device memory is freed twice"
                                    : "device memory is freed by the other library");
        return false;
    }
    if (state().release_check != nullptr)
        if (const std::string why = state().release_check(pointer, allocation->bytes); !why.empty())
            violation(why);
    // cudaFree() waits for the device before it comes here. ncclMemFree() unmaps the memory at
    // once.
    if (of_nccl)
        if (const std::string work = allocation->order.after(state().known[allocation->device]);
            !work.empty())
            violation("device memory is freed while " + work +
                      " may use it: the host has not waited for it");
    state().memory.free(*allocation);
    return true;
}

void *nccl_memory_of(const void *begin, std::size_t bytes) {
    const Lock lock(state().mutex);
    const Allocation *allocation = state().memory.find(begin);
    if (allocation == nullptr || allocation->freed || !allocation->of_nccl) return nullptr;
    const auto end = static_cast<const char *>(begin) + bytes;
    return end <= allocation->begin + allocation->bytes ? allocation->begin : nullptr;
}

void set_pinned_allocation(PinnedAllocation allocation) {
    const Lock lock(state().mutex);
    state().pinned_allocation = allocation;
}

std::pair<std::uint64_t, std::uint64_t> device_addresses() {
    return state().memory.addresses();
}

void set_release_check(ReleaseCheck check) {
    const Lock lock(state().mutex);
    state().release_check = check;
}

void set_wait_check(WaitCheck check) {
    const Lock lock(state().mutex);
    state().wait_check = check;
}

}  // namespace gpu_double

using namespace gpu_double;

// The functions that may fail first ask for an injected failure.
#define CALL(function)                                 \
    if (const int result = injected_result(#function)) \
    return result == no_effect ? cuda::success : noted(result)

extern "C" {

int cudaGetLastError() {
    CALL(cudaGetLastError);
    return std::exchange(last_error, cuda::success);
}

int cudaGetDeviceCount(int *count) {
    CALL(cudaGetDeviceCount);
    *count = 0;
    if (driver() < 12000) return noted(cuda::insufficient_driver);
    *count = devices();
    return noted(*count == 0 ? cuda::no_device : cuda::success);
}

int cudaGetDevice(int *device) {
    CALL(cudaGetDevice);
    *device = current_device();
    return cuda::success;
}

int cudaSetDevice(int device) {
    CALL(cudaSetDevice);
    if (device < 0 || device >= devices()) return noted(101);  // cudaErrorInvalidDevice
    set_current_device(device);
    return cuda::success;
}

int cudaRuntimeGetVersion(int *version) {
    CALL(cudaRuntimeGetVersion);
    *version = runtime_version;
    return cuda::success;
}

int cudaDriverGetVersion(int *version) {
    CALL(cudaDriverGetVersion);
    *version = driver();
    return cuda::success;
}

const char *cudaGetErrorString(int error) {
    switch (error) {
        case cuda::success:
            return "no error";
        case cuda::invalid_value:
            return "invalid argument";
        case cuda::memory_allocation:
            return "out of memory";
        case cuda::insufficient_driver:
            return "the driver is too old";
        case cuda::no_device:
            return "no device";
        case cuda::not_ready:
            return "not ready";
        case invalid_handle:
            return "invalid handle";
        case illegal_address:
            return "an illegal memory access was encountered";
        case capture_unsupported:
            return "not permitted when stream is capturing";
        case capture_invalid:
            return "the capture was invalidated";
        case capture_unjoined:
            return "the capture has unjoined work";
        case cuda::capture_implicit:
            return "an operation would make the legacy stream depend on a capturing blocking "
                   "stream";
        case capture_isolation:
            return "a dependency crosses the border of a capture";
        default:
            return "unrecognized error code";
    }
}

int cudaMalloc(void **pointer, std::size_t bytes) {
    CALL(cudaMalloc);
    const Lock lock(state().mutex);
    if (const cuda::Error error = unsafe_call("cudaMalloc()")) return noted(error);
    if (const cuda::Error error = failure_of(current_device())) return noted(error);
    void *made = allocate(bytes, false);
    if (made == nullptr) return noted(cuda::memory_allocation);
    *pointer = made;
    return cuda::success;
}

int cudaHostAlloc(void **pointer, std::size_t bytes, unsigned) {
    CALL(cudaHostAlloc);
    const Lock lock(state().mutex);
    if (const cuda::Error error = unsafe_call("cudaHostAlloc()")) return noted(error);
    if (const cuda::Error error = failure_of(current_device())) return noted(error);
    *pointer = state().pinned_allocation != nullptr ? state().pinned_allocation(bytes)
                                                    : std::calloc(bytes, 1);
    if (*pointer == nullptr) return noted(cuda::memory_allocation);
    state().pinned.add(*pointer, bytes);
    return cuda::success;
}

int cudaFreeHost(void *pointer) {
    CALL(cudaFreeHost);
    const Lock lock(state().mutex);
    state().pinned.remove(pointer);
    if (state().pinned_allocation == nullptr) std::free(pointer);
    return cuda::success;
}

int cudaFree(void *pointer) {
    CALL(cudaFree);
    if (pointer == nullptr) return cuda::success;
    {
        const Lock lock(state().mutex);
        if (const cuda::Error error = unsafe_call("cudaFree()")) return noted(error);
    }
    if (const cuda::Error error = cudaDeviceSynchronize()) return error;
    return release(pointer, false) ? cuda::success : cuda::invalid_value;
}

int cudaMemcpyAsync(void *target, const void *source, std::size_t bytes, int, CUstream_st *stream) {
    CALL(cudaMemcpyAsync);
    return copy(target, source, bytes, stream);
}

int cudaMemcpy(void *target, const void *source, std::size_t bytes, int) {
    CALL(cudaMemcpy);
    if (const cuda::Error error = copy(target, source, bytes, nullptr)) return error;
    return synchronize(nullptr, "cudaMemcpy()");
}

int cudaMemsetAsync(void *target, int value, std::size_t bytes, CUstream_st *stream) {
    CALL(cudaMemsetAsync);
    {
        const Lock lock(state().mutex);
        if (!state().memory.contains(target) && state().pinned.find(target, bytes) == nullptr)
            return noted(cuda::invalid_value);
    }
    return enqueue(
        stream, "cudaMemsetAsync", {{target, bytes, true}},
        [=] { return [=] { std::memset(view(target), value, bytes); }; }, any_device);
}

int cudaStreamCreateWithFlags(CUstream_st **stream, unsigned flags) {
    CALL(cudaStreamCreateWithFlags);
    const Lock lock(state().mutex);
    if (const cuda::Error error = failure_of(current_device())) return noted(error);
    *stream = make_stream(current_device(), (flags & 1) == 0);
    return cuda::success;
}

int cudaStreamDestroy(CUstream_st *handle) {
    CALL(cudaStreamDestroy);
    const Lock lock(state().mutex);
    CUstream_st *stream = stream_of(handle);
    if (stream == nullptr || handle == nullptr) return invalid_handle;
    stream->destroyed = true;
    const std::lock_guard<std::mutex> queue_lock(stream->mutex);
    stream->end = true;
    stream->changed.notify_all();
    return cuda::success;
}

int cudaStreamSynchronize(CUstream_st *stream) {
    CALL(cudaStreamSynchronize);
    return noted(synchronize(stream, "cudaStreamSynchronize()"));
}

int cudaStreamQuery(CUstream_st *handle) {
    CALL(cudaStreamQuery);
    const Lock lock(state().mutex);
    CUstream_st *stream = stream_of(handle);
    if (stream == nullptr) return noted(invalid_handle);
    if (stream->capture) {
        stream->capture->invalid = true;
        violation("cudaStreamQuery() of a stream that is captured");
        return noted(capture_unsupported);
    }
    if (const cuda::Error error = check_wait("cudaStreamQuery()")) return noted(error);
    if (const cuda::Error error = failure_of(stream->device)) return noted(error);
    if (handle == nullptr)
        if (const cuda::Error error = legacy_call("cudaStreamQuery()")) return noted(error);
    {
        const std::lock_guard<std::mutex> queue_lock(stream->mutex);
        if (stream->running || !stream->queue.empty()) return noted(cuda::not_ready);
    }
    waited(stream->clock, stream->ran, stream->device);
    return cuda::success;
}

int cudaStreamIsCapturing(CUstream_st *handle, int *status) {
    CALL(cudaStreamIsCapturing);
    const Lock lock(state().mutex);
    CUstream_st *stream = stream_of(handle);
    if (stream == nullptr) return noted(invalid_handle);
    if (handle == nullptr && captures_blocking_stream()) return noted(cuda::capture_implicit);
    *status = !stream->capture           ? cuda::capture_none
              : stream->capture->invalid ? cuda::capture_invalidated
                                         : cuda::capture_active;
    return cuda::success;
}

int cudaStreamWaitEvent(CUstream_st *handle, CUevent_st *event, unsigned) {
    CALL(cudaStreamWaitEvent);
    const Lock lock(state().mutex);
    CUstream_st *stream = stream_of(handle);
    if (stream == nullptr || !state().events.contains(event)) return noted(invalid_handle);
    if (stream->capture || event->capture) return wait_in_capture(*stream, *event);
    if (event->point) wait_for(*stream, event->point);
    return cuda::success;
}

int cudaEventCreateWithFlags(CUevent_st **event, unsigned) {
    CALL(cudaEventCreateWithFlags);
    const Lock lock(state().mutex);
    *event = new CUevent_st;
    (*event)->device = current_device();
    state().events.insert(*event);
    return cuda::success;
}

int cudaEventRecord(CUevent_st *event, CUstream_st *handle) {
    CALL(cudaEventRecord);
    const Lock lock(state().mutex);
    CUstream_st *stream = stream_of(handle);
    if (stream == nullptr || !state().events.contains(event)) return noted(invalid_handle);
    if (event->device != stream->device) {
        violation("cudaEventRecord() of an event of device " + std::to_string(event->device) +
                  " on a stream of device " + std::to_string(stream->device));
        return noted(invalid_handle);
    }
    event->capture.reset();
    if (stream->capture) {
        record_in_capture(*stream, *event);
        return cuda::success;
    }
    if (const cuda::Error error = failure_of(stream->device)) return noted(error);
    order_with_legacy(*stream);
    event->point = mark(*stream);
    return cuda::success;
}

int cudaEventQuery(CUevent_st *event) {
    CALL(cudaEventQuery);
    const Lock lock(state().mutex);
    if (!state().events.contains(event)) return noted(invalid_handle);
    if (const cuda::Error error = check_wait("cudaEventQuery()")) return noted(error);
    if (const cuda::Error error = failure_of(event->device)) return noted(error);
    if (event->point && !event->point->reached) return noted(cuda::not_ready);
    if (event->point) waited(event->point->clock, event->point->ran, event->device);
    return cuda::success;
}

int cudaEventSynchronize(CUevent_st *event) {
    CALL(cudaEventSynchronize);
    std::shared_ptr<Point> point;
    {
        const Lock lock(state().mutex);
        if (!state().events.contains(event)) return noted(invalid_handle);
        if (const cuda::Error error = check_wait("cudaEventSynchronize()")) return error;
        point = event->point;
    }
    return point ? wait_on_host(point, event->device) : cuda::success;
}

int cudaEventDestroy(CUevent_st *event) {
    CALL(cudaEventDestroy);
    const Lock lock(state().mutex);
    if (state().events.erase(event) == 0) return noted(invalid_handle);
    delete event;
    return cuda::success;
}

int cudaDeviceSynchronize() {
    CALL(cudaDeviceSynchronize);
    std::vector<std::shared_ptr<Point>> points;
    {
        const Lock lock(state().mutex);
        if (state().wait_check != nullptr)
            if (const std::string why = state().wait_check(); !why.empty())
                violation("a wait for the device: " + why);
        if (const cuda::Error error = device_call("a wait for the device")) return noted(error);
        for (CUstream_st *stream : state().streams)
            if (stream->device == current_device() && stream->process == current_process())
                points.push_back(mark(*stream));
    }
    cuda::Error error = cuda::success;
    for (const auto &point : points) error = wait_on_host(point, current_device());
    return error;
}

}  // extern "C"
