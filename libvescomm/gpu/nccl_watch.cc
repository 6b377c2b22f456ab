// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/nccl_watch.h"

#include <chrono>
#include <utility>

#include "base/signals.h"

namespace vescomm::internal {
namespace {

constexpr auto period = std::chrono::milliseconds(20);

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
    std::int64_t begin = state_.load(std::memory_order_acquire);
    if (begin <= no_call) return;
    const double seconds = static_cast<double>(nanoseconds_now() - begin) * 1e-9;
    // A call that takes less than a period is left alone: it does not wait.
    const bool waits = seconds * 1e3 > static_cast<double>(period.count());
    if (!waits || (seconds < limit_seconds_ && !failed)) return;
    if (!state_.compare_exchange_strong(begin, is_ending)) return;
    actions_.end();
    state_.store(has_ended, std::memory_order_release);
    state_.notify_all();
}

NcclWatch::Scope::Scope(NcclWatch *watch) : watch_(watch) {
    if (watch_ == nullptr) return;
    begin_ = nanoseconds_now();
    std::int64_t idle = no_call;
    watch_->state_.compare_exchange_strong(idle, begin_);  // fails after a call was ended
}

NcclWatch::Scope::~Scope() {
    if (watch_ == nullptr) return;
    std::int64_t mine = begin_;
    if (watch_->state_.compare_exchange_strong(mine, no_call)) return;
    watch_->state_.wait(is_ending);
}

}  // namespace vescomm::internal
