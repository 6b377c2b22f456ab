// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

namespace vescomm::internal {
namespace {

// Seconds in which a call of NCCL that nothing ends may find the failure of another rank.
constexpr double grace_seconds = 0.5;

constexpr auto derivation_runs = "a call that creates a communicator from it does not return";

}  // namespace

void NcclCommunicator::use_device(int device) {
    device_ = device;
    if (options_.borrowed || watch_) return;
    watch_ = std::make_unique<NcclWatch>(
        comm_.config().timeout_seconds,
        NcclWatch::Actions{.failed = [this] { return comm_.failure().broken(); },
                           .end_waits_of_kernels = [this] { end_waits_of_kernels(); },
                           .end = [this] { end_call(); },
                           // After an abort the program's next call would use what is gone.
                           .may_end_kernels =
                               [this] {
                                   return libraries_.nccl.comm_revoke != nullptr &&
                                          nccl_ != nullptr && state_ == State::usable;
                               }});
}

void NcclCommunicator::set_end_word(std::uint32_t *word) {
    const std::lock_guard lock(end_word_mutex_);
    end_word_ = word;
}

void NcclCommunicator::end_waits_of_kernels() noexcept {
    const std::lock_guard lock(end_word_mutex_);
    if (end_word_ != nullptr) std::atomic_ref(*end_word_).store(1);
}

// NCCL waits for its kernels, which may be behind kernels of vescomm on a stream.
void NcclCommunicator::end_call() noexcept {
    end_waits_of_kernels();
    const bool revokes = libraries_.nccl.comm_revoke != nullptr;
    const BackgroundCall call =
        call_on_device(libraries_.cuda, device_,
                       [revokes, nccl = libraries_.nccl, comm = get()](const cuda::Runtime &) {
                           return revokes ? nccl.comm_revoke(comm, 0) : nccl.comm_abort(comm);
                       });
    if (!call.wait(end_limit(comm_))) state_ = State::end_hangs;
    else if (!revokes) state_ = State::aborted;
    else state_ = call.result() == nccl::success ? State::revoked : State::revocation_failed;
}

nccl::Result NcclCommunicator::result() const {
    nccl::Result error = nccl::success;
    const nccl::Result result = libraries_.nccl.comm_get_async_error(nccl_, &error);
    return result == nccl::success ? error : result;
}

std::string NcclCommunicator::reason(nccl::Result result) const {
    std::string text = libraries_.nccl.get_error_string(result);
    const char *last = libraries_.nccl.get_last_error(nccl_);
    if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
    return text;
}

// ---- the end ----

nccl::Result NcclCommunicator::finalize_and_wait(const nccl::Library &nccl, nccl::Comm comm) {
    nccl::Result result = nccl.comm_finalize(comm);
    // It does not block if NCCL_COMM_BLOCKING says so.
    while (result == nccl::in_progress) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (const auto asked = nccl.comm_get_async_error(comm, &result); asked != nccl::success)
            return asked;
    }
    return result;
}

NcclCommunicator::End NcclCommunicator::finalize(bool idle) noexcept {
    using Kind = End::Kind;
    stop_watch();
    if (options_.borrowed || !usable()) return {};
    if (keeps_windows_ && !idle) {
        forget("work of the device may still read windows of other ranks");
        return {};
    }
    const auto finalized = std::make_shared<std::atomic<bool>>(false);
    const BackgroundCall end =
        call_on_device(libraries_.cuda, device_,
                       [nccl = libraries_.nccl, comm = get(), finalized](const cuda::Runtime &) {
                           const nccl::Result result = finalize_and_wait(nccl, comm);
                           if (result != nccl::success) return result;
                           *finalized = true;
                           return nccl.comm_destroy(comm);
                       });
    const Deadline limit = comm_.deadline();
    const auto turn = [&] { return Deadline::after(std::min(limit.seconds_left(), 0.01)); };
    while (!end.wait(turn()) && !comm_.failure().broken() && !limit.expired()) continue;
    // Other ranks have failed. NCCL neither revokes a communicator after ncclCommFinalize(), nor
    // aborts one that another thread still uses: all that is left is to wait.
    if (!end.done() && !limit.expired()) end.wait(end_limit(comm_));
    if (!end.done()) {
        forget(
            "ncclCommFinalize() does not return; it waits for other ranks, for graphs that "
            "captured its calls, and for earlier work of their streams");
        return {.kind = Kind::late};
    }
    // One that was to be destroyed does not exist any more.
    if (*finalized) nccl_ = nullptr;
    if (end.result() == nccl::success) return {};
    return {Kind::failed, end.result(), *finalized ? "ncclCommDestroy()" : "ncclCommFinalize()"};
}

void NcclCommunicator::end() noexcept {
    end_waits_of_kernels();
    if (!(options_.shrinkable || keeps_windows_) || !revoke()) abort();
}

bool NcclCommunicator::revoke() noexcept {
    const auto revoke = libraries_.nccl.comm_revoke;
    stop_watch();
    if (nccl_ == nullptr || options_.borrowed || revoke == nullptr) return false;
    if (state_ != State::usable) return state_ == State::revoked;
    const BackgroundCall call =
        call_on_device(libraries_.cuda, device_,
                       [revoke, comm = get()](const cuda::Runtime &) { return revoke(comm, 0); });
    if (!call.wait(end_limit(comm_))) {
        forget("ncclCommRevoke() does not return; it waits for earlier work of the streams");
        return false;
    }
    const bool revoked = call.result() == nccl::success;
    state_ = revoked ? State::revoked : State::revocation_failed;
    return revoked;
}

void NcclCommunicator::abort() noexcept {
    end_waits_of_kernels();
    stop_watch();
    if (nccl_ == nullptr || options_.borrowed) {
        nccl_ = nullptr;
        return;
    }
    if (state_ == State::end_hangs) return forget("its end in a call that waited does not return");
    if (!end_derivation()) return forget(derivation_runs);
    // Once it has been revoked, NCCL waits neither for kernels, of which one may have begun since,
    // nor for graphs, which refer to it.
    if ((keeps_windows_ || state_ == State::revoked) && !end_reads_of_windows())
        return forget("work of the device may still use it, or the windows of other ranks");
    if (captured_ && state_ == State::revoked) return forget("graphs have captured its calls");
    // The end of the derivation, or the wait before, may have failed to revoke it.
    const nccl::Comm ended = nccl_.exchange(nullptr);
    if (ended == nullptr || state_ == State::aborted) return;
    if (abort_within_limit(ended)) return;
    forget(
        "ncclCommAbort() does not return; it waits for graphs that captured its calls, and for "
        "earlier work of their streams");
}

bool NcclCommunicator::end_reads_of_windows() noexcept {
    revoke();
    const BackgroundCall idle =
        call_on_device(libraries_.cuda, device_,
                       [](const cuda::Runtime &cuda) { return cuda.device_synchronize(); });
    return idle.wait(end_limit(comm_)) && idle.result() != cuda::capture_unsupported;
}

bool NcclCommunicator::abort_within_limit(nccl::Comm ended) const noexcept {
    const BackgroundCall abort =
        call_on_device(libraries_.cuda, device_,
                       [comm_abort = libraries_.nccl.comm_abort, ended](const cuda::Runtime &) {
                           return comm_abort(ended);
                       });
    return abort.wait(end_limit(comm_));
}

void NcclCommunicator::forget(const char *why) noexcept {
    stop_watch();
    nccl_ = nullptr;
    state_ = State::forgotten;
    log_leak(comm_, "the communicator of NCCL", why);
}

// ---- derivations ----

bool NcclCommunicator::end_derivation() noexcept {
    stop_watch();
    if (!derivation_ || derivation_->done()) return true;
    derived_->given_up = true;
    if (nccl_ == nullptr) return false;  // it was given up before
    // Without a revocation the call ends only if NCCL finds the failure.
    if (state_ != State::usable) return derivation_->wait(Deadline::after(grace_seconds));
    revoke();
    return derivation_->wait(end_limit(comm_));
}

// It is not used again: it may have messages of the call.
void NcclCommunicator::abandon_derivation() noexcept {
    end_waits_of_kernels();
    const bool ended = end_derivation();
    derivation_.reset();
    if (!ended) return forget(derivation_runs);
    abort_derived(*derived_);
    abort();
}

void NcclCommunicator::abort_derived(Derivation &made) const noexcept {
    const nccl::Comm ended = std::exchange(made.comm, nullptr);
    if (ended == nullptr) return;
    if (!abort_within_limit(ended))
        log_leak(comm_, "a new communicator of NCCL", "ncclCommAbort() does not return");
}

}  // namespace vescomm::internal
