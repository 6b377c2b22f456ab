// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "base/biased_lock.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include "base/thread_sanitizer.h"

namespace vescomm::internal {

namespace {

bool membarrier(int command) noexcept {
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool fence_running_threads() noexcept {
    return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void sleep_for(long nanoseconds) noexcept {
    const timespec time{0, nanoseconds};
    nanosleep(&time, nullptr);
}

// Executes a fence in every running thread of this process. A thread that does not run has executed
// one when it was descheduled.
void fence_all_threads() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (fence_running_threads()) return;
    // The registration is gone: the process has called exec or has a new seccomp filter.
    membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    if (fence_running_threads()) return;
    // Store buffers of processors drain at the next interrupt at the latest, well within this time.
    sleep_for(50'000'000);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace

bool BiasedLock::can_bias() noexcept {
    if (VESCOMM_THREAD_SANITIZER) return false;
    static const bool can =
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && fence_running_threads();
    return can;
}

void BiasedLock::lock() noexcept {
    mutex_.lock();
    const std::uintptr_t bias = bias_.load(std::memory_order_relaxed);
    if (bias != 0) revoke(bias);
}

// Yields first, then sleeps: the owner may be moving megabytes, and may have a lower priority than
// this thread.
void BiasedLock::revoke(std::uintptr_t bias) noexcept {
    bias_.store(0, std::memory_order_relaxed);
    fence_all_threads();
    constexpr int yields = 100;
    const Inside &inside = inside_[bias % max_owners];
    for (int i = 0; inside.load(std::memory_order_acquire) != 0; ++i) {
        if (i < yields) sched_yield();
        else sleep_for(50'000);
    }
}

// The number of a thread that is to have the bias; max_owners: there have been too many others.
std::uintptr_t BiasedLock::owner_number(std::uintptr_t thread) noexcept {
    for (std::uintptr_t number = 0; number < max_owners; ++number) {
        if (owners_[number] == 0) owners_[number] = thread;
        if (owners_[number] == thread) return number;
    }
    return max_owners;
}

void BiasedLock::unlock() noexcept {
    const std::uintptr_t me = this_thread();
    if (last_ != me) {
        last_ = me;
        in_a_row_ = 0;
    }
    if (++in_a_row_ >= until_bias_ && !unbiased_ && can_bias()) {
        in_a_row_ = 0;
        until_bias_ = later_;
        const std::uintptr_t number = owner_number(me);
        if (number < max_owners) bias_.store(me + number, std::memory_order_relaxed);
    }
    mutex_.unlock();
}

void BiasedLock::stay_unbiased() noexcept {
    lock();
    unbiased_ = true;
    unlock();
}

}  // namespace vescomm::internal
