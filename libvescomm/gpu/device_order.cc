// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The order of streams and the calls on a device communicator. Zone: per operation.
#include <string>

#include "gpu/device_communicator.h"

namespace vescomm::internal {
namespace {

// The default stream is that of the current device.
class CurrentDevice {
public:
    CurrentDevice(const cuda::Runtime &cuda, int device) : cuda_(cuda) {
        if (cuda_.get_device(&before_) != cuda::success || before_ == device) before_ = -1;
        else cuda_.set_device(device);
    }
    ~CurrentDevice() {
        if (before_ >= 0) cuda_.set_device(before_);
    }
    CurrentDevice(const CurrentDevice &) = delete;
    CurrentDevice &operator=(const CurrentDevice &) = delete;

private:
    const cuda::Runtime &cuda_;
    int before_ = -1;  // -1: it has not changed
};

// The error of the default stream during a capture of a stream that it waits for.
Error implicit_capture(const std::string &what, const std::string &why) {
    return {VESCOMM_ERROR_INVALID_ARGUMENT,
            what + " while a stream that it waits for is captured into a graph: " + why};
}

}  // namespace

void DeviceCommunicator::refuse_capture(cuda::Stream stream, const char *what) {
    int capture = cuda::capture_none;
    const cuda::Error queried = libraries_.cuda.stream_is_capturing(stream, &capture);
    if (queried == cuda::capture_implicit)
        throw implicit_capture(std::string("the default stream cannot ") + what,
                               cuda_reason(queried));
    require_cuda(queried, "cudaStreamIsCapturing()");
    if (capture != cuda::capture_none)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string("a stream cannot ") + what + " while it is captured into a graph");
}

void DeviceCommunicator::check_call(const char *function, cuda::Stream stream) {
    check_call(function);
    if (stream != nullptr) return;
    int capture = cuda::capture_none;
    const cuda::Error queried = libraries_.cuda.stream_is_capturing(stream, &capture);
    if (queried == cuda::capture_implicit)
        throw implicit_capture(std::string(function) + ": the default stream can have no work",
                               cuda_reason(queried) + "; pass another stream");
}

void DeviceCommunicator::end_call(cuda::Stream stream) {
    const cuda::Runtime &cuda = libraries_.cuda;
    int capture = cuda::capture_none;
    require_cuda(cuda.stream_is_capturing(stream, &capture), "cudaStreamIsCapturing()");
    if (capture != cuda::capture_none) return nccl_.note_capture();
    if (last_work_ == nullptr)
        require_cuda(cuda.event_create(&last_work_, cuda::event_disable_timing),
                     "cudaEventCreateWithFlags()");
    require_cuda(cuda.event_record(last_work_, stream), "cudaEventRecord()");
}

void DeviceCommunicator::order(cuda::Stream stream) {
    const CurrentDevice current(libraries_.cuda, device());
    refuse_capture(stream, "wait for earlier collectives");
    if (last_work_ != nullptr)
        require_cuda(libraries_.cuda.stream_wait_event(stream, last_work_, 0),
                     "cudaStreamWaitEvent()");
}

}  // namespace vescomm::internal
