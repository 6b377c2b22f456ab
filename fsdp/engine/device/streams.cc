// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/streams.h"

#include "fsdp/error.h"
#include "gpu/relaxed_capture.h"

namespace vescomm::fsdp::device {

namespace {

int current_device() {
    int device = 0;
    require(functions().get_device(&device), "cudaGetDevice()");
    return device;
}

}  // namespace

Streams::Streams() : device_(current_device()) {}

void Streams::check_device() const {
    if (const int device = current_device(); device != device_)
        refuse("device {} is current, and the engine is on device {}; call cudaSetDevice({})",
               device, device_, device_);
}

void Streams::use(void *compute) {
    check_device();
    compute_ = static_cast<cuda::Stream>(compute);
    ++uses_;
}

// A wait keeps the record that it has found, so one event suffices.
void Streams::order(cuda::Stream from, cuda::Stream to) {
    now_.record(from);
    now_.wait_on(to);
}

void Streams::gather_after_writes() {
    if (masters_written_) order(reduce_, gather_);
    masters_written_ = false;
}

void Streams::copy(void *target, const void *source, std::size_t bytes, int kind) {
    if (bytes == 0) return;
    const internal::RelaxedCapture relaxed(functions());
    require(functions().memcpy_async(target, source, bytes, kind, reduce_), "cudaMemcpyAsync()");
    require(functions().stream_synchronize(reduce_), "cudaStreamSynchronize()");
}

void Streams::to_host(void *target, const void *source, std::size_t bytes) {
    copy(target, source, bytes, cuda::copy_device_to_host);
}

void Streams::to_device(void *target, const void *source, std::size_t bytes) {
    copy(target, source, bytes, cuda::copy_host_to_device);
}

}  // namespace vescomm::fsdp::device
