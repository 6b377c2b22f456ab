// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace vescomm::internal {

// Returns a value that identifies the calling thread among all living threads of the process, a
// multiple of 8.
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

// A lock for data that one thread uses nearly always and other threads sometimes. The usual thread,
// the owner of the bias, acquires it with two loads and a store, and releases it with a store: no
// atomic read-modify-write, no fence.
//
//     owner                              another thread
//     its inside = 1                     mutex.lock()
//     (compiler fence)                   bias = none
//     bias still mine? ──no──► mutex     fence in every thread of the process (membarrier)
//     ... critical section ...           wait until the owner's inside == 0
//     its inside = 0                     ... critical section, mutex.unlock() ...
//
// If the fence comes before the owner's store, the owner sees that the bias is gone. If it comes
// after the store, the other thread sees that the owner is inside. After a revocation, a thread
// gets the bias when it has acquired the mutex often enough with no other thread in between.
//
// Every owner has its own `inside` word for the life of the lock. A thread may lose its core
// between its first look at the bias and its store, and store when another thread has become the
// owner. A shared word would then say that the new owner is outside. After max_owners owners, the
// lock is a mutex for all other threads.
//
// The lock is a plain mutex if the process cannot use membarrier, and under ThreadSanitizer, which
// does not know membarrier. The lock is not recursive.
//
// Source: Vasudevan, Namjoshi, Edwards, "Simple and fast biased locks" (PACT 2010). The fence:
// Desnoyers et al., "User-level implementations of read-copy update" (IEEE TPDS 23, 2012).
class BiasedLock {
public:
    // Consecutive acquisitions by one thread that give it the bias: the first time, and after a
    // revocation. A revocation takes microseconds; later_bias uncontended acquisitions of a mutex
    // take more.
    static constexpr std::uint32_t first_bias = 64, later_bias = 16'384;
    static constexpr std::uintptr_t max_owners = 8;
    using Inside = std::atomic<std::uint32_t>;

    explicit BiasedLock(std::uint32_t first = first_bias, std::uint32_t later = later_bias) noexcept
        : until_bias_(first), later_(later) {}
    BiasedLock(const BiasedLock &) = delete;
    BiasedLock &operator=(const BiasedLock &) = delete;

    // Acquires the lock if this thread owns the bias. If it returns nullptr, use lock() and
    // unlock(). `pause` is called after the first look at the bias; tests stop there.
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
    // Releases the lock after enter() has returned `inside`.
    static void leave(Inside &inside) noexcept { inside.store(0, std::memory_order_release); }

    // For any thread.
    void lock() noexcept;
    void unlock() noexcept;

    // Makes the lock a plain mutex for the rest of its life.
    void stay_unbiased() noexcept;

    // For tests: returns true if this thread owns the bias.
    bool biased_to_this_thread() const noexcept {
        return (bias_.load(std::memory_order_relaxed) ^ this_thread()) < max_owners;
    }
    // Returns true if this process can use membarrier, and so a bias.
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

    // this_thread() of the owner, plus its number; 0: no owner.
    std::atomic<std::uintptr_t> bias_{0};
    // By owner, 1 while it is inside; only the owner writes its word.
    std::array<Inside, max_owners> inside_{};
    // Guarded by mutex_.
    std::uint32_t until_bias_;  // consecutive acquisitions that give the bias
    const std::uint32_t later_;  // until_bias_ after the first bias
    std::uint32_t in_a_row_ = 0;  // consecutive acquisitions by last_
    bool unbiased_ = false;  // stay_unbiased() was called
    std::uintptr_t last_ = 0;  // thread that acquired the mutex last
    std::array<std::uintptr_t, max_owners> owners_{};  // threads that have had the bias, by number
    std::mutex mutex_;
};

}  // namespace vescomm::internal
