// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "base/biased_lock.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace vescomm {
namespace {

constexpr std::uint64_t seed = 20261122;

// Two words that are equal unless a thread is inside change().
struct Guarded {
    std::uint64_t first = 0, second = 0;

    void change() {
        EXPECT_EQ(first, second);
        first = first + 1;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        second = second + 1;
    }
};

TEST(BiasedLock, GivesTheBiasToAThreadThatTakesItOften) {
    BiasedLock lock(4, 8);
    for (int i = 0; i < 3; ++i) BiasedLock::Guard guard(lock);
    EXPECT_FALSE(lock.biased_to_this_thread());
    for (int i = 0; i < 2; ++i) BiasedLock::Guard guard(lock);
    EXPECT_EQ(lock.biased_to_this_thread(), BiasedLock::can_bias());
}

TEST(BiasedLock, LosesTheBiasToAnotherThreadAndGivesItBackLater) {
    BiasedLock lock(1, 8);
    { BiasedLock::Guard guard(lock); }
    ASSERT_EQ(lock.biased_to_this_thread(), BiasedLock::can_bias());
    std::thread([&] { BiasedLock::Guard guard(lock); }).join();
    EXPECT_FALSE(lock.biased_to_this_thread());
    for (int i = 0; i < 7; ++i) BiasedLock::Guard guard(lock);
    EXPECT_FALSE(lock.biased_to_this_thread());
    { BiasedLock::Guard guard(lock); }
    EXPECT_EQ(lock.biased_to_this_thread(), BiasedLock::can_bias());
}

TEST(BiasedLock, StaysAMutexAfterStayUnbiased) {
    BiasedLock lock(1, 1);
    { BiasedLock::Guard guard(lock); }
    lock.stay_unbiased();
    for (int i = 0; i < 10; ++i) BiasedLock::Guard guard(lock);
    EXPECT_FALSE(lock.biased_to_this_thread());
}

TEST(BiasedLock, RevocationWaitsForTheOwnerToLeave) {
    BiasedLock lock(1, 1);
    { BiasedLock::Guard guard(lock); }
    Guarded guarded;
    std::thread other;
    std::barrier both(2);
    {
        BiasedLock::Guard guard(lock);
        other = std::thread([&] {
            both.arrive_and_wait();
            BiasedLock::Guard inner(lock);
            guarded.change();
        });
        both.arrive_and_wait();
        for (int i = 0; i < 100'000; ++i) guarded.change();
    }
    other.join();
    EXPECT_EQ(guarded.first, 100'001u);
}

// Threads acquire the lock in bursts of random length, so the bias moves between them all the time.
TEST(BiasedLock, ExcludesThreadsWhileTheBiasMoves) {
    for (const int threads : {2, 3, 5}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(threads) + " threads");
        BiasedLock lock(1, 20);
        Guarded guarded;
        std::array<std::uint64_t, 5> taken{};
        std::vector<std::thread> all;
        for (int number = 0; number < threads; ++number)
            all.emplace_back([&, number] {
                std::mt19937_64 random(seed + static_cast<std::uint64_t>(number));
                for (int burst = 0; burst < 300; ++burst) {
                    const auto length = random() % 300;
                    for (std::uint64_t i = 0; i < length; ++i) {
                        BiasedLock::Guard guard(lock);
                        guarded.change();
                        ++taken[static_cast<std::size_t>(number)];
                    }
                    if (random() % 2 == 0) std::this_thread::yield();
                }
            });
        for (std::thread &thread : all) thread.join();
        std::uint64_t sum = 0;
        for (const std::uint64_t some : taken) sum += some;
        EXPECT_EQ(guarded.first, sum);
        EXPECT_EQ(guarded.second, sum);
    }
}

// One thread uses the lock all the time, while short-lived threads reuse the same thread control
// blocks one after another.
TEST(BiasedLock, ExcludesShortLivedThreads) {
    BiasedLock lock(1, 5);
    Guarded guarded;
    std::uint64_t mine = 0;
    constexpr int others = 200;
    std::atomic<bool> done{false};
    std::thread usual([&] {
        while (!done) {
            BiasedLock::Guard guard(lock);
            guarded.change();
            ++mine;
        }
    });
    for (int i = 0; i < others; ++i)
        std::thread([&] {
            for (int k = 0; k < 20; ++k) {
                BiasedLock::Guard guard(lock);
                guarded.change();
            }
        }).join();
    done = true;
    usual.join();
    EXPECT_EQ(guarded.first, mine + others * 20);
}

// ---- all interleavings of a model ----

// The owner enters twice while another thread revokes the bias once. Each thread has a store
// buffer. Stores reach memory in order at any later time, as on processors with total store order.
// The model has one step for each load, store and fence of the code.
struct Model {
    // Shared memory.
    int bias = 1, inside = 0;
    // The owner's next step, and how often it has been inside.
    int owner = 0, entries = 0;
    std::array<int, 4> owner_buffer{};  // values of `inside`
    int owner_buffered = 0;
    // The other thread's next step. It holds the mutex from the beginning. Its store to `bias` may
    // be buffered.
    int other = 0;
    bool other_buffered = false;

    auto operator<=>(const Model &) const = default;
};

enum OwnerStep { look, announce, look_again, work, withdraw, take_back, end };
enum OtherStep { clear, fence_all, look_inside, other_work, finished };

class Explorer {
public:
    explicit Explorer(bool fenced) : fenced_(fenced) {}
    // Returns true if both threads can be inside at once.
    bool finds_both_inside() {
        visit(Model());
        return both_;
    }
    std::size_t states() const { return seen_.size(); }

private:
    void visit(const Model &m) {
        if (!seen_.insert(m).second) return;
        both_ |= m.owner == work && m.other == other_work;
        step_owner(m);
        step_other(m);
        // A buffered store reaches memory.
        if (m.owner_buffered > 0) visit(drained(m, 1));
        if (m.other_buffered) visit(published(m));
    }

    static Model drained(Model m, int count) {
        for (; count > 0; --count) {
            m.inside = m.owner_buffer[0];
            for (std::size_t i = 0; i + 1 < m.owner_buffer.size(); ++i)
                m.owner_buffer[i] = m.owner_buffer[i + 1];
            m.owner_buffer.back() = 0;
            --m.owner_buffered;
        }
        return m;
    }
    static Model published(Model m) {
        m.other_buffered = false;
        m.bias = 0;
        return m;
    }
    static bool store(Model &m, int value) {
        if (m.owner_buffered == static_cast<int>(m.owner_buffer.size())) return false;
        m.owner_buffer[static_cast<std::size_t>(m.owner_buffered++)] = value;
        return true;
    }

    void step_owner(Model m) {
        switch (m.owner) {
            case look:
                m.owner = m.bias == 1 ? announce : end;
                return visit(m);
            case announce:
                if (!store(m, 1)) return;
                m.owner = look_again;
                return visit(m);
            case look_again:
                m.owner = m.bias == 1 ? work : take_back;
                return visit(m);
            case work:
                m.owner = withdraw;
                return visit(m);
            case withdraw:
                if (!store(m, 0)) return;
                m.owner = ++m.entries == 2 ? end : look;
                return visit(m);
            case take_back:
                if (!store(m, 0)) return;
                m.owner = end;
                return visit(m);
            default:
                return;
        }
    }

    void step_other(Model m) {
        switch (m.other) {
            case clear:
                m.other_buffered = true;
                m.other = fence_all;
                return visit(m);
            case fence_all:
                // Both buffers are empty afterwards.
                if (fenced_) {
                    m = drained(m, m.owner_buffered);
                    if (m.other_buffered) m = published(m);
                }
                m.other = look_inside;
                return visit(m);
            case look_inside:
                if (m.inside != 0) return;
                m.other = other_work;
                return visit(m);
            case other_work:
                m.other = finished;
                return visit(m);
            default:
                return;
        }
    }

    const bool fenced_;
    bool both_ = false;
    std::set<Model> seen_;
};

TEST(BiasedLockModel, ExcludesBothThreadsWithTheFence) {
    Explorer explorer(true);
    EXPECT_FALSE(explorer.finds_both_inside());
    EXPECT_GT(explorer.states(), 100u);
}

TEST(BiasedLockModel, LetsBothThreadsInWithoutTheFence) {
    EXPECT_TRUE(Explorer(false).finds_both_inside());
}

}  // namespace
}  // namespace vescomm
