// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/nccl_watch.h"

#include <chrono>
#include <utility>

#include "base/signals.h"

namespace vescomm::internal {
namespace {

constexpr auto period = std::chrono::milliseconds(20);

// A program that is in a call of vescomm learns of a failure before.
constexpr auto kernels_may_run_for = std::chrono::seconds(1);

std::int64_t nanoseconds_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

NcclWatch::NcclWatch(double limit_seconds, Actions actions)
    : limit_seconds_(limit_seconds), actions_(std::move(actions)) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { watch(); });
}

NcclWatch::~NcclWatch() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    stopped_.notify_all();
    thread_.join();
}

void NcclWatch::watch() {
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, period, [&] { return stop_; })) look();
}

void NcclWatch::look() {
    const bool failed = actions_.failed();
    if (failed) actions_.end_waits_of_kernels();
    if (failed && failed_at_ == 0) failed_at_ = nanoseconds_now();
    const std::int64_t begin = state_.load(std::memory_order_acquire);
    if (begin == no_call && failed) look_between_calls();
    if (begin <= no_call) return;
    const double seconds = static_cast<double>(nanoseconds_now() - begin) * 1e-9;
    // A call that takes less than a period is left alone: it does not wait.
    const bool waits = seconds * 1e3 > static_cast<double>(period.count());
    if (waits && (seconds >= limit_seconds_ || failed)) end(begin);
}

void NcclWatch::look_between_calls() {
    const std::chrono::nanoseconds since(nanoseconds_now() - failed_at_);
    if (since > kernels_may_run_for && actions_.may_end_kernels()) end(no_call);
}

void NcclWatch::end(std::int64_t state) {
    if (!state_.compare_exchange_strong(state, is_ending)) return;
    actions_.end();
    state_.store(has_ended, std::memory_order_release);
    state_.notify_all();
}

void NcclWatch::stop_ending() noexcept {
    std::int64_t state = state_.load(std::memory_order_acquire);
    while (state != has_ended && state != stopped_ending) {
        if (state == is_ending) state_.wait(is_ending);
        else if (state_.compare_exchange_strong(state, stopped_ending)) return;
        state = state_.load(std::memory_order_acquire);
    }
}

NcclWatch::Scope::Scope(NcclWatch *watch) : watch_(watch) {
    if (watch_ == nullptr) return;
    begin_ = nanoseconds_now();
    std::int64_t idle = no_call;
    // Fails once something was ended, and while it is: then the call waits for the end.
    if (!watch_->state_.compare_exchange_strong(idle, begin_)) watch_->state_.wait(is_ending);
}

NcclWatch::Scope::~Scope() {
    if (watch_ == nullptr) return;
    std::int64_t mine = begin_;
    if (watch_->state_.compare_exchange_strong(mine, no_call)) return;
    watch_->state_.wait(is_ending);
}

}  // namespace vescomm::internal
