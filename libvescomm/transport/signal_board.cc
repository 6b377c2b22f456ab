// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/signal_board.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace vescomm::internal {

namespace {

// The memory may be mapped at different addresses, so private futexes cannot be used.
long futex(std::atomic<std::uint32_t> &word, int operation, std::uint32_t value,
           const timespec *timeout) {
    static_assert(sizeof(word) == sizeof(std::uint32_t));
    return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

// True if this process takes part in the fences of other processes. Registered once.
bool takes_fences() {
    static const bool registered =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
    return registered;
}

// Executes a fence in every running thread of every process that takes part.
void fence_all() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (takes_fences()) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

}  // namespace

std::size_t SignalBoard::bytes(int local_ranks, std::uint32_t channels) {
    const auto lines = 1 + static_cast<std::size_t>(local_ranks) * (1 + std::size_t{channels});
    return 64 * lines;
}

SignalBoard::SignalBoard(std::byte *memory, int local_ranks, std::uint32_t channels,
                         int own_local_rank, int wake_descriptor,
                         std::function<void(int local_rank)> wake)
    : memory_(memory),
      local_ranks_(local_ranks),
      channels_(channels),
      own_local_rank_(own_local_rank),
      wake_descriptor_(wake_descriptor),
      wake_(std::move(wake)) {
    static_assert(sizeof(Header) == 64 && sizeof(Doorbell) == 64);
    static_assert(flags_per_channel * sizeof(std::uint64_t) == 64);
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
    if (!takes_fences()) header().unfenced.fetch_add(1);
}

SignalBoard::Doorbell &SignalBoard::doorbell(int local_rank) const noexcept {
    return *reinterpret_cast<Doorbell *>(memory_ + 64 * (1 + static_cast<std::size_t>(local_rank)));
}

void SignalBoard::ring_others() noexcept {
    for (int local_rank = 0; local_rank < local_ranks_; ++local_rank)
        if (local_rank != own_local_rank_) ring(local_rank);
}

void SignalBoard::withdraw() noexcept {
    header().withdrawn.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void SignalBoard::ring(int local_rank) noexcept {
    Doorbell &bell = doorbell(local_rank);
    if (bell.sleeping.load(std::memory_order_seq_cst) > 0) {
        bell.rings.fetch_add(1, std::memory_order_seq_cst);
        futex(bell.rings, FUTEX_WAKE, INT_MAX, nullptr);
    }
    if (bell.polling.load(std::memory_order_seq_cst) > 0) wake_(local_rank);
}

void SignalBoard::announce() noexcept {
    header().asleep.fetch_add(1, std::memory_order_seq_cst);
    fence_all();
}

std::uint32_t SignalBoard::begin_sleep() noexcept {
    Doorbell &bell = doorbell(own_local_rank_);
    const std::uint32_t seen = bell.rings.load(std::memory_order_seq_cst);
    bell.sleeping.fetch_add(1, std::memory_order_seq_cst);
    announce();
    return seen;
}

void SignalBoard::sleep(std::uint32_t seen, Clock::time_point until) noexcept {
    const auto left = until - Clock::now();
    if (left <= Clock::duration::zero()) return;
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec timeout{static_cast<time_t>(nanoseconds / 1'000'000'000),
                           static_cast<long>(nanoseconds % 1'000'000'000)};
    futex(doorbell(own_local_rank_).rings, FUTEX_WAIT, seen, &timeout);
}

void SignalBoard::end_sleep() noexcept {
    header().asleep.fetch_sub(1, std::memory_order_seq_cst);
    doorbell(own_local_rank_).sleeping.fetch_sub(1, std::memory_order_seq_cst);
}

void SignalBoard::begin_poll() noexcept {
    doorbell(own_local_rank_).polling.fetch_add(1, std::memory_order_seq_cst);
    announce();
}

void SignalBoard::end_poll() noexcept {
    header().asleep.fetch_sub(1, std::memory_order_seq_cst);
    doorbell(own_local_rank_).polling.fetch_sub(1, std::memory_order_seq_cst);
    // Emptied, so that the next poll sleeps.
    constexpr int max_rings = 64;
    std::uint64_t ring = 0;
    for (int i = 0; i < max_rings && read(wake_descriptor_, &ring, sizeof ring) > 0; ++i) continue;
}

}  // namespace vescomm::internal
