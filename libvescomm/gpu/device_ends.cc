// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The end of a device communicator, of NCCL's, and of the work of its device.
#include <algorithm>
#include <utility>

#include "gpu/device_communicator_calls.h"
#include "observe/log.h"

namespace vescomm::internal {
namespace {

// Seconds within which NCCL and the work of a device end, unless the timeout is shorter.
constexpr double end_seconds = 10;

}  // namespace

DeviceCommunicator::~DeviceCommunicator() {
    const RelaxedCapture relaxed(libraries_.cuda);
    if (comm_->failure().broken()) abort_nccl();
    if (!memories_.empty() || workspace_ != nullptr) {
        if (device_is_idle()) {
            for (const auto &[pointer, memory] : memories_) release(pointer, memory);
            if (workspace_ != nullptr) release(workspace_, {});
        } else {
            log_leak("its device memory", "work of the device may still use it");
            if (peer_links_) peer_links_->leak();
        }
    }
    if (options_.borrowed == nullptr) finalize_nccl();
    abort_nccl();  // no effect if it has been finalized
}

void DeviceCommunicator::finalize_nccl() noexcept {
    if (!has_nccl()) return;
    const BackgroundCall end = call_on_device([nccl = libraries_.nccl, comm = nccl_](auto &) {
        const nccl::Result result = nccl.comm_finalize(comm);
        return result == nccl::success ? nccl.comm_destroy(comm) : result;
    });
    const Deadline limit = comm_->deadline();
    const auto turn = [&] { return Deadline::after(std::min(limit.seconds_left(), 0.01)); };
    while (!end.wait(turn()) && !comm_->failure().broken() && !limit.expired()) continue;
    if (end.done() && end.result() != nccl::success) return;
    nccl_ = nullptr;
    if (end.done()) return;
    forget_nccl(
        "ncclCommFinalize() does not return; it waits for graphs that captured its calls, and for "
        "earlier work of their streams");
}

Deadline DeviceCommunicator::end_limit() const {
    return Deadline::after(std::min<double>(comm_->config().timeout_seconds, end_seconds));
}

BackgroundCall DeviceCommunicator::synchronize_device() const {
    return call_on_device([](const cuda::Runtime &cuda) { return cuda.device_synchronize(); });
}

bool DeviceCommunicator::usable() const {
    try {
        comm_->check();
        return true;
    } catch (const Error &) {
        return false;
    }
}

bool DeviceCommunicator::device_is_idle() noexcept {
    if (abort_runs_) return false;
    const BackgroundCall wait = synchronize_device();
    // After any other error of CUDA no work of the device runs any more.
    return wait.wait(comm_->failure().broken() ? end_limit() : comm_->deadline()) &&
           wait.result() != cuda::capture_unsupported;
}

void DeviceCommunicator::log_leak(const char *what, const char *why) const noexcept {
    try {
        log(LogLevel::warn, "gpu", rank(), ranks(),
            std::string("a device communicator leaks ") + what + " until the process ends: " + why);
    } catch (const std::bad_alloc &) {
        // The line is lost.
    }
}

cuda::Error DeviceCommunicator::wait_for_device(const char *what) {
    const BackgroundCall idle = synchronize_device();
    poll(what, [&] { return idle.done(); });
    return idle.result();
}

void DeviceCommunicator::end_nccl() noexcept {
    if (peer_links_) peer_links_->end();
    if (!options_.shrinkable || !revoke_nccl()) abort_nccl();
}

bool DeviceCommunicator::revoke_nccl() noexcept {
    const auto revoke = libraries_.nccl.comm_revoke;
    if (nccl_ == nullptr || options_.borrowed != nullptr || revoke == nullptr) return false;
    // NCCL revokes a communicator once.
    if (revoked_ || (watch_ && watch_->ended())) return true;
    revoked_ = true;
    const BackgroundCall call =
        call_on_device([revoke, comm = nccl_](const cuda::Runtime &) { return revoke(comm, 0); });
    if (call.wait(end_limit())) return call.result() == nccl::success;
    forget_nccl("ncclCommRevoke() does not return; it waits for earlier work of the streams");
    return false;
}

void DeviceCommunicator::forget_nccl(const char *why) noexcept {
    nccl_ = nullptr;
    abort_runs_ = true;
    log_leak("the communicator of NCCL", why);
}

void DeviceCommunicator::abort_nccl() noexcept {
    if (peer_links_) peer_links_->end();
    if (nccl_ == nullptr || options_.borrowed != nullptr) {
        nccl_ = nullptr;
        return;
    }
    if (!end_derivation())
        return forget_nccl("a call that creates a communicator from it does not return");
    // The end of the derivation may have failed to revoke it.
    const nccl::Comm ended = std::exchange(nccl_, nullptr);
    if (ended == nullptr) return;
    if (watch_ && watch_->ended() && libraries_.nccl.comm_revoke == nullptr) return;  // it did
    const BackgroundCall abort =
        call_on_device([comm_abort = libraries_.nccl.comm_abort, ended](const cuda::Runtime &) {
            return comm_abort(ended);
        });
    if (abort.wait(end_limit())) return;
    forget_nccl(
        "ncclCommAbort() does not return; it waits for graphs that captured its calls, and for "
        "earlier work of their streams");
}

}  // namespace vescomm::internal
