// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace vescomm {

// A value that no other living thread has, a multiple of 8.
inline std::uintptr_t this_thread() noexcept {
#if defined(__x86_64__) && defined(__linux__)
    std::uintptr_t pointer;
    // The thread control block begins with its own address.
    asm("movq %%fs:0, %0" : "=r"(pointer));
    return pointer;
#elif defined(__aarch64__)
    return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
#else
    alignas(8) static thread_local char here;
    return reinterpret_cast<std::uintptr_t>(&here);
#endif
}

// A lock for what one thread uses nearly always and others sometimes. That thread, the owner of the
// bias, takes it with two loads and a store, and gives it back with a store: no atomic
// read-modify-write, no fence.
//
//     owner                              another thread
//     its inside = 1                     mutex.lock()
//     (compiler fence)                   bias = none
//     bias still mine? ──no──► mutex     fence in every thread of the process (membarrier)
//     ... critical section ...           wait until the owner's inside == 0
//     its inside = 0                     ... critical section, mutex.unlock() ...
//
// The fence lies either before the owner's store, and then the owner sees that the bias is gone; or
// after it, and then the other thread sees that the owner is inside. Once revoked, the bias goes to
// a thread that has taken the mutex often enough without any other in between.
//
// Every owner has a word `inside` of its own for the life of the lock: a thread may lose its core
// before its store, and make it when another thread has long become the owner. A word that both use
// would then say that the new owner is outside. After max_owners owners the lock stays a mutex for
// other threads.
//
// Where the process cannot use membarrier, and under ThreadSanitizer, which does not know it, the
// lock is always its mutex. Not recursive.
//
// Vasudevan, Namjoshi, Edwards: Simple and fast biased locks (PACT 2010). Desnoyers et al.:
// User-level implementations of read-copy update (IEEE TPDS 23, 2012), for the fence.
class BiasedLock {
public:
    // Acquisitions in a row by one thread that give it the bias, the first time and later. A
    // revocation takes microseconds; this many uncontended acquisitions of a mutex take more.
    static constexpr std::uint32_t first_bias = 64, later_bias = 16'384;
    static constexpr std::uintptr_t max_owners = 8;
    using Inside = std::atomic<std::uint32_t>;

    explicit BiasedLock(std::uint32_t first = first_bias, std::uint32_t later = later_bias) noexcept
        : until_bias_(first), later_(later) {}
    BiasedLock(const BiasedLock &) = delete;
    BiasedLock &operator=(const BiasedLock &) = delete;

    // The way of the owner of the bias. nullptr: use lock() and unlock() instead. `pause` is called
    // after the first look at the bias; tests stop there.
    template <typename Pause>
    Inside *enter(Pause pause) noexcept {
        const std::uintptr_t bias = bias_.load(std::memory_order_relaxed);
        const std::uintptr_t owner = bias ^ this_thread();
        if (owner >= max_owners) return nullptr;
        pause();
        Inside &inside = inside_[owner];
        inside.store(1, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (bias_.load(std::memory_order_relaxed) == bias) [[likely]]
            return &inside;
        leave(inside);
        return nullptr;
    }
    Inside *enter() noexcept {
        return enter([] {});
    }
    // After enter() has returned `inside`.
    static void leave(Inside &inside) noexcept { inside.store(0, std::memory_order_release); }

    // The way of every thread.
    void lock() noexcept;
    void unlock() noexcept;

    // From now on a mutex and nothing else.
    void stay_unbiased() noexcept;

    // For tests: whether this thread has the bias.
    bool biased_to_this_thread() const noexcept {
        return (bias_.load(std::memory_order_relaxed) ^ this_thread()) < max_owners;
    }
    // Whether this process can use a bias at all.
    static bool can_bias() noexcept;

    class Guard {
    public:
        explicit Guard(BiasedLock &lock) noexcept : lock_(lock), entered_(lock.enter()) {
            if (entered_ == nullptr) lock_.lock();
        }
        ~Guard() {
            if (entered_ != nullptr) leave(*entered_);
            else lock_.unlock();
        }
        Guard(const Guard &) = delete;
        Guard &operator=(const Guard &) = delete;

    private:
        BiasedLock &lock_;
        Inside *const entered_;
    };

private:
    void revoke(std::uintptr_t bias) noexcept;
    std::uintptr_t owner_number(std::uintptr_t thread) noexcept;

    // this_thread() of the owner, plus its number; 0: there is none.
    std::atomic<std::uintptr_t> bias_{0};
    std::array<Inside, max_owners> inside_{};  // by owner, and written by it only
    // Guarded by the mutex.
    std::uint32_t until_bias_;  // acquisitions in a row that are still missing
    const std::uint32_t later_;
    std::uint32_t in_a_row_ = 0;
    bool unbiased_ = false;
    std::uintptr_t last_ = 0;  // the thread that had the mutex last
    std::array<std::uintptr_t, max_owners> owners_{};  // threads that have had the bias
    std::mutex mutex_;
};

}  // namespace vescomm
