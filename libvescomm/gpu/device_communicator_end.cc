// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The end of a device communicator, and waits for all work of its device.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "gpu/device_communicator.h"
#include "gpu/device_communicator_calls.h"
#include "gpu/relaxed_capture.h"

namespace vescomm::internal {
namespace {

constexpr auto last_work = "the work of the device, to free the communicator";

}  // namespace

DeviceCommunicator::~DeviceCommunicator() {
    try {
        close();
    } catch (const std::exception &) {
        // A creation that has failed reports another error.
    }
    nccl_.set_end_word(nullptr);
}

void DeviceCommunicator::close() {
    if (std::exchange(closed_, true)) return;
    const RelaxedCapture relaxed(libraries_.cuda);
    std::exception_ptr failure;
    bool idle = false;
    const bool was_broken = comm_->failure().broken();
    if (was_broken) nccl_.abort();
    else {
        try {
            idle = wait_for_last_work();
        } catch (const std::exception &) {
            failure = std::current_exception();
            nccl_.abort();
        }
    }
    if (!memories_.empty() || workspace_ != nullptr) {
        idle = idle || device_is_idle(end_limit(*comm_));
        if (idle) {
            for (const auto &[pointer, memory] : memories_) release(pointer, memory);
            if (workspace_ != nullptr) release(workspace_, {});
        } else {
            log_leak(*comm_, "its device memory", "work of the device may still use it");
            if (!memories_.empty() && !comm_->failure().broken() && options_.borrowed == nullptr &&
                nccl_.get() != nullptr)
                nccl_.forget("its device memory stays registered");
            if (peer_links_) peer_links_->leak();
        }
        memories_.clear();
        workspace_ = nullptr;
    }
    if (last_work_ != nullptr) libraries_.cuda.event_destroy(last_work_);
    last_work_ = nullptr;
    try {
        if (!comm_->failure().broken()) finalize_nccl(idle);
        else if (!was_broken) comm_->failure().check();
    } catch (const std::exception &) {
        if (!failure) failure = std::current_exception();
    }
    nccl_.abort();  // no effect if it has been finalized
    if (failure) std::rethrow_exception(failure);
}

void DeviceCommunicator::finalize_nccl(bool idle) {
    using Kind = NcclCommunicator::End::Kind;
    const NcclCommunicator::End end = nccl_.finalize(idle);
    if (end.kind == Kind::ended) return;
    comm_->failure().check();
    vescomm_status_t status = VESCOMM_ERROR_TIMEOUT;
    std::string why;
    if (end.kind == Kind::late) {
        // Graphs, which the log names, are no failure.
        const std::string late = calls_ ? calls_->late() : "";
        if (late.empty()) return;
        why = fmt::format("rank {} waited for the end of NCCL's communicator until its deadline{}",
                          rank(), late);
    } else {
        status = status_of(end.result);
        why = failure_of(end.function, end.result);
    }
    if (usable()) comm_->fail(status, why);
    comm_->failure().check();  // the first cause, if it was another one
    throw Error(status, why);
}

bool DeviceCommunicator::wait_for_last_work() {
    // Nothing of the program's communicator ends.
    const bool borrowed = options_.borrowed != nullptr;
    if (nccl_.get() == nullptr || (borrowed && memories_.empty() && workspace_ == nullptr))
        return false;
    if (usable()) {
        if (calls_) begin_call({.kind = DeviceCall::Kind::end});
        return wait_for_device(last_work) != cuda::capture_unsupported;
    }
    // The vescomm_comm_t was freed: no other rank learns of a failure through it.
    if (calls_) calls_->leave();
    const BackgroundCall idle = synchronize_device();
    const Deadline limit = comm_->deadline();
    while (!idle.wait(Deadline::after(std::min(limit.seconds_left(), 0.01)))) {
        if (const nccl::Result error = nccl_.result(); failed(error))
            throw Error(status_of(error), failure_text(error));
        if (limit.expired())
            throw Error(VESCOMM_ERROR_TIMEOUT, "rank " + std::to_string(rank()) + " waited for " +
                                                   last_work + " until its deadline");
    }
    return idle.result() != cuda::capture_unsupported;
}

BackgroundCall DeviceCommunicator::synchronize_device() const {
    return call_on_device(libraries_.cuda, device(),
                          [](const cuda::Runtime &cuda) { return cuda.device_synchronize(); });
}

cuda::Error DeviceCommunicator::wait_for_device(const char *what) {
    const BackgroundCall idle = synchronize_device();
    poll(what, [&] {
        check();
        return idle.done();
    });
    check();  // work may end because NCCL failed
    return idle.result();
}

bool DeviceCommunicator::usable() const {
    try {
        comm_->check();
        return true;
    } catch (const Error &) {
        return false;
    }
}

bool DeviceCommunicator::device_is_idle(Deadline limit) noexcept {
    if (nccl_.forgotten()) return false;
    const BackgroundCall wait = synchronize_device();
    // After any other error of CUDA no work of the device runs any more.
    return wait.wait(limit) && wait.result() != cuda::capture_unsupported;
}

}  // namespace vescomm::internal
