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
                           .end = [this] { end_call(); }});
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
    const BackgroundCall call = call_on_device(
        libraries_.cuda, device_, [nccl = libraries_.nccl, comm = nccl_](const cuda::Runtime &) {
            // After a revocation the communicator still exists.
            return nccl.comm_revoke != nullptr ? nccl.comm_revoke(comm, 0) : nccl.comm_abort(comm);
        });
    if (!call.wait(end_limit(comm_))) end_call_hangs_ = true;
    else revocation_failed_ = call.result() != nccl::success;
}

nccl::Result NcclCommunicator::state() const {
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

nccl::Result NcclCommunicator::finalize_and_wait(const nccl::Library &nccl, nccl::Comm comm,
                                                 const std::atomic<Finalization> &now) {
    nccl::Result result = nccl.comm_finalize(comm);
    // It does not block if NCCL_COMM_BLOCKING says so.
    while (result == nccl::in_progress && now == Finalization::runs) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (const auto asked = nccl.comm_get_async_error(comm, &result); asked != nccl::success)
            return asked;
    }
    return result;
}

NcclCommunicator::End NcclCommunicator::finalize(bool idle) noexcept {
    using Kind = End::Kind;
    if (options_.borrowed || !usable()) return {};
    if (keeps_windows_ && !idle) {
        forget("work of the device may still read windows of other ranks");
        return {};
    }
    const auto now = std::make_shared<std::atomic<Finalization>>(Finalization::runs);
    const BackgroundCall end = call_on_device(
        libraries_.cuda, device_,
        [nccl = libraries_.nccl, comm = nccl_, now](const cuda::Runtime &) {
            const nccl::Result result = finalize_and_wait(nccl, comm, *now);
            const bool succeeded = result == nccl::success;
            auto before = Finalization::runs;
            if (!now->compare_exchange_strong(
                    before, succeeded ? Finalization::destroys : Finalization::failed))
                return nccl::system_error;
            return succeeded ? nccl.comm_destroy(comm) : result;
        });
    const Deadline limit = comm_.deadline();
    const auto turn = [&] { return Deadline::after(std::min(limit.seconds_left(), 0.01)); };
    while (!end.wait(turn()) && !comm_.failure().broken() && !limit.expired()) continue;
    // Other ranks have failed: it may end nevertheless, or by a revocation, after which the caller
    // aborts it.
    if (!end.done() && !limit.expired() && !end.wait(Deadline::after(grace_seconds))) {
        auto before = Finalization::runs;
        if (libraries_.nccl.comm_revoke != nullptr &&
            now->compare_exchange_strong(before, Finalization::given_up))
            revoke();
        end.wait(end_limit(comm_));
    }
    // One that was to be destroyed does not exist any more.
    const bool destroyed = *now == Finalization::destroys;
    if (destroyed) nccl_ = nullptr;
    if (end.done() && end.result() != nccl::success)
        return {Kind::failed, end.result(), destroyed ? "ncclCommDestroy()" : "ncclCommFinalize()"};
    nccl_ = nullptr;
    if (end.done()) return {};
    if (!forgotten_)
        forget(
            "ncclCommFinalize() does not return; it waits for other ranks, for graphs that "
            "captured its calls, and for earlier work of their streams");
    return {.kind = Kind::late};
}

void NcclCommunicator::end() noexcept {
    end_waits_of_kernels();
    if (!(options_.shrinkable || keeps_windows_) || !revoke()) abort();
}

bool NcclCommunicator::revoke() noexcept {
    const auto revoke = libraries_.nccl.comm_revoke;
    if (nccl_ == nullptr || options_.borrowed || revoke == nullptr) return false;
    // NCCL revokes a communicator once.
    if (revoked_ || watch_ended()) return true;
    revoked_ = true;
    const BackgroundCall call =
        call_on_device(libraries_.cuda, device_,
                       [revoke, comm = nccl_](const cuda::Runtime &) { return revoke(comm, 0); });
    if (call.wait(end_limit(comm_))) {
        revocation_failed_ = call.result() != nccl::success;
        return !revocation_failed_;
    }
    forget("ncclCommRevoke() does not return; it waits for earlier work of the streams");
    return false;
}

void NcclCommunicator::abort() noexcept {
    end_waits_of_kernels();
    if (nccl_ == nullptr || options_.borrowed) {
        nccl_ = nullptr;
        return;
    }
    if (end_call_hangs_) return forget("its end in a call that waited does not return");
    if (!end_derivation()) return forget(derivation_runs);
    // Once it has been revoked, NCCL waits neither for kernels, of which one may have begun since,
    // nor for graphs, which refer to it.
    const auto was_revoked = [&] {
        const bool by_watch = watch_ended() && libraries_.nccl.comm_revoke != nullptr;
        return (revoked_ || by_watch) && !revocation_failed_;
    };
    if ((keeps_windows_ || was_revoked()) && !end_reads_of_windows())
        return forget("work of the device may still use it, or the windows of other ranks");
    if (captured_ && was_revoked()) return forget("graphs have captured its calls");
    // The end of the derivation, or the wait before, may have failed to revoke it.
    const nccl::Comm ended = std::exchange(nccl_, nullptr);
    if (ended == nullptr) return;
    if (watch_ended() && libraries_.nccl.comm_revoke == nullptr)
        return;  // the watch has aborted it
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
    nccl_ = nullptr;
    forgotten_ = true;
    log_leak(comm_, "the communicator of NCCL", why);
}

// ---- derivations ----

bool NcclCommunicator::end_derivation() noexcept {
    if (!derivation_ || derivation_->done()) return true;
    derived_->given_up = true;
    if (nccl_ == nullptr) return false;  // it was given up before
    // NCCL revokes a communicator once. Without that the call ends only if NCCL finds the failure.
    if (revoked_) return derivation_->wait(Deadline::after(grace_seconds));
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
