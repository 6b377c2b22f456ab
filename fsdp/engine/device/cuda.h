// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA runtime that the engine calls itself, from the library that libvescomm
// has loaded, and owners of what they make. Types are those of libvescomm/gpu.
#pragma once

#include <cstddef>
#include <utility>

#include "fsdp/spec/allocator.h"
#include "gpu/cuda_functions.h"

namespace vescomm::fsdp::device {

namespace cuda = internal::cuda;

struct Functions {
    cuda::Error (*get_device)(int *device);
    cuda::Error (*malloc)(void **pointer, std::size_t bytes);
    cuda::Error (*free)(void *pointer);
    cuda::Error (*host_alloc)(void **pointer, std::size_t bytes, unsigned flags);
    cuda::Error (*free_host)(void *pointer);
    cuda::Error (*memset_async)(void *target, int value, std::size_t bytes, cuda::Stream stream);
    cuda::Error (*memcpy_async)(void *target, const void *source, std::size_t bytes, int kind,
                                cuda::Stream stream);
    cuda::Error (*device_synchronize)();
    cuda::Error (*stream_create)(cuda::Stream *stream, unsigned flags);
    cuda::Error (*stream_destroy)(cuda::Stream stream);
    cuda::Error (*stream_synchronize)(cuda::Stream stream);
    cuda::Error (*stream_query)(cuda::Stream stream);
    cuda::Error (*stream_is_capturing)(cuda::Stream stream, int *status);
    cuda::Error (*stream_wait_event)(cuda::Stream stream, cuda::Event event, unsigned flags);
    cuda::Error (*event_create)(cuda::Event *event, unsigned flags);
    cuda::Error (*event_record)(cuda::Event event, cuda::Stream stream);
    cuda::Error (*event_query)(cuda::Event event);
    cuda::Error (*event_destroy)(cuda::Event event);
    cuda::Error (*exchange_capture_mode)(int *mode);
    cuda::Error (*get_last_error)();
    const char *(*get_error_string)(cuda::Error error);
};

// Loads libvescomm's libraries at the first call. Throws Failure with the reason if device memory
// cannot be used. Threads: safe.
const Functions &functions();

// Throws Failure if a call failed.
void require(cuda::Error error, const char *call);

// Throws Failure if the stream cannot be waited for: it is captured into a graph, or it is the
// default stream, which waits for one that is captured.
void refuse_captured(cuda::Stream stream);
// True when all work of the stream is complete.
bool is_complete(cuda::Stream stream);

// An event without times.
class Event {
public:
    Event();
    ~Event();
    Event(Event &&other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    Event &operator=(Event &&) = delete;

    void record(cuda::Stream stream);
    // Later work of the stream waits for the last record(), if there was one.
    void wait_on(cuda::Stream stream) const;
    // True when the work before the last record() is complete.
    bool reached() const;

private:
    cuda::Event event_ = nullptr;
};

// A stream that does not wait for the default stream.
class Stream {
public:
    Stream();
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    operator cuda::Stream() const { return stream_; }

private:
    cuda::Stream stream_ = nullptr;
};

enum class Place {
    device,  // memory of the current device
    pinned,  // host memory, which kernels access at the same address
};

// Zeroed memory for kernels, which is not registered with NCCL.
class Bytes {
public:
    Bytes() = default;
    // `allocator`: of memory of the device; one of the process is cudaMalloc().
    explicit Bytes(std::size_t bytes, Place place = Place::device, const Allocator &allocator = {});
    ~Bytes();
    Bytes(Bytes &&other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          place_(other.place_),
          allocator_(other.allocator_) {}
    Bytes &operator=(Bytes &&other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(place_, other.place_);
        std::swap(allocator_, other.allocator_);
        return *this;
    }

    std::byte *data() const { return static_cast<std::byte *>(data_); }
    std::size_t size() const { return size_; }

private:
    void free() noexcept;

    void *data_ = nullptr;
    std::size_t size_ = 0;
    Place place_ = Place::device;
    Allocator allocator_;
};

}  // namespace vescomm::fsdp::device
