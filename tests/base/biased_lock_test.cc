// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "base/biased_lock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace vescomm::internal {
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

// A thread loses its core between its first look at the bias and its store, and goes on when
// another thread has the bias and is inside.
TEST(BiasedLock, WaitsForTheOwnerWhenAnEarlierOwnerGoesOn) {
    if (!BiasedLock::can_bias()) GTEST_SKIP() << "the lock is always a mutex";
    BiasedLock lock(1, 1);
    std::barrier both(2);
    std::atomic<bool> inside{false}, met{false};
    std::thread earlier([&] {
        { BiasedLock::Guard guard(lock); }
        EXPECT_TRUE(lock.biased_to_this_thread());
        const auto *entered = lock.enter([&] {
            both.arrive_and_wait();
            both.arrive_and_wait();
        });
        EXPECT_EQ(entered, nullptr);
        both.arrive_and_wait();
        lock.lock();
        met = inside.load();
        lock.unlock();
    });
    both.arrive_and_wait();
    { BiasedLock::Guard guard(lock); }
    ASSERT_TRUE(lock.biased_to_this_thread());
    auto *entered = lock.enter();
    ASSERT_NE(entered, nullptr);
    inside = true;
    both.arrive_and_wait();  // the earlier owner goes on, and sees that it has lost the bias
    both.arrive_and_wait();
    // Long enough for a lock that does not wait. One that does cannot fail here.
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    inside = false;
    BiasedLock::leave(*entered);
    earlier.join();
    EXPECT_FALSE(met);
}

TEST(BiasedLock, StaysAMutexForThreadsAfterTheLastOwner) {
    BiasedLock lock(1, 1);
    std::vector<std::thread> owners;
    // All owners live at the same time, so each has a thread control block of its own.
    std::barrier all(static_cast<std::ptrdiff_t>(BiasedLock::max_owners) + 1);
    for (std::uintptr_t owner = 0; owner < BiasedLock::max_owners; ++owner)
        owners.emplace_back([&] {
            { BiasedLock::Guard guard(lock); }
            all.arrive_and_wait();
        });
    all.arrive_and_wait();
    for (int i = 0; i < 10; ++i) BiasedLock::Guard guard(lock);
    EXPECT_FALSE(lock.biased_to_this_thread());
    for (std::thread &thread : owners) thread.join();
}

// ---- all interleavings of a model ----

// Threads that take the lock several times each, as owner of the bias or with the mutex, and that
// may get the bias whenever they give the mutex back. Each thread has a buffer of stores that reach
// memory at any later moment, in order, as on processors with total store order. The model has one
// step for each load, store and fence of the code.
constexpr int model_threads = 3;
constexpr int model_rounds = 3;

enum Word : std::int8_t { bias_word, mutex_word, inside_words };
enum ModelStep : std::int8_t {
    look,
    announce,
    look_again,
    work_as_owner,
    withdraw,
    take_back,
    lock_mutex,
    look_at_bias,
    clear_bias,
    fence_all,
    look_inside,
    work_with_mutex,
    give_bias,
    unlock_mutex,
    end
};

struct Store {
    std::int8_t word = 0, value = 0;
    auto operator<=>(const Store &) const = default;
};

struct ModelThread {
    std::int8_t step = look, rounds = 0, revoked = 0;
    std::int8_t buffered = 0;
    std::array<Store, 4> buffer{};
    auto operator<=>(const ModelThread &) const = default;
};

// A bias or a mutex of n + 1 belongs to thread n.
struct Model {
    std::array<std::int8_t, inside_words + model_threads> memory{};
    std::array<ModelThread, model_threads> threads{};
    auto operator<=>(const Model &) const = default;
};

class Explorer {
public:
    struct Options {
        bool fenced = true;
        bool one_inside_word = false;  // for all owners
    };
    explicit Explorer(Options options) : options_(options) {}

    // Returns true if two threads can be inside at once.
    bool finds_two_inside() {
        std::vector<Model> todo{Model()};
        const auto visit = [&](const Model &m) {
            if (seen_.insert(m).second) todo.push_back(m);
        };
        while (!todo.empty()) {
            const Model m = todo.back();
            todo.pop_back();
            int inside = 0;
            for (const ModelThread &thread : m.threads)
                inside += thread.step == work_as_owner || thread.step == work_with_mutex;
            if (inside > 1) return true;
            for (int thread = 0; thread < model_threads; ++thread) {
                step(m, thread, visit);
                if (m.threads[at(thread)].buffered > 0) {
                    Model drained = m;
                    drain(drained, thread, 1);
                    visit(drained);
                }
            }
        }
        return false;
    }
    std::size_t states() const { return seen_.size(); }

private:
    static std::size_t at(int index) { return static_cast<std::size_t>(index); }

    static void drain(Model &m, int thread, int count) {
        ModelThread &its = m.threads[at(thread)];
        for (; count > 0; --count) {
            m.memory[at(its.buffer[0].word)] = its.buffer[0].value;
            std::shift_left(its.buffer.begin(), its.buffer.end(), 1);
            its.buffer.back() = {};
            --its.buffered;
        }
    }
    static void drain(Model &m, int thread) { drain(m, thread, m.threads[at(thread)].buffered); }

    static bool store(Model &m, int thread, int word, int value) {
        ModelThread &its = m.threads[at(thread)];
        if (at(its.buffered) == its.buffer.size()) return false;
        its.buffer[at(its.buffered++)] = {static_cast<std::int8_t>(word),
                                          static_cast<std::int8_t>(value)};
        return true;
    }
    // A thread sees its own stores at once.
    static int load(const Model &m, int thread, int word) {
        const ModelThread &its = m.threads[at(thread)];
        for (int i = its.buffered - 1; i >= 0; --i)
            if (its.buffer[at(i)].word == word) return its.buffer[at(i)].value;
        return m.memory[at(word)];
    }
    int inside_of(int thread) const {
        return inside_words + (options_.one_inside_word ? 0 : thread);
    }
    static void end_round(ModelThread &its) {
        its.step = ++its.rounds == model_rounds ? end : look;
    }

    template <typename Visit>
    void step(Model m, int thread, const Visit &visit) const {
        ModelThread &its = m.threads[at(thread)];
        const int me = thread + 1;
        const auto go = [&](ModelStep next) {
            its.step = next;
            visit(m);
        };
        switch (its.step) {
            case look:
                return go(load(m, thread, bias_word) == me ? announce : lock_mutex);
            case announce:
                if (store(m, thread, inside_of(thread), 1)) go(look_again);
                return;
            case look_again:
                return go(load(m, thread, bias_word) == me ? work_as_owner : take_back);
            case work_as_owner:
                return go(withdraw);
            case withdraw:
                if (!store(m, thread, inside_of(thread), 0)) return;
                end_round(its);
                return visit(m);
            case take_back:
                if (store(m, thread, inside_of(thread), 0)) go(lock_mutex);
                return;
            case lock_mutex:
                if (m.memory[mutex_word] != 0) return;
                drain(m, thread);  // an atomic read-modify-write
                m.memory[mutex_word] = static_cast<std::int8_t>(me);
                return go(look_at_bias);
            case look_at_bias:
                its.revoked = static_cast<std::int8_t>(load(m, thread, bias_word));
                return go(its.revoked == 0 ? work_with_mutex : clear_bias);
            case clear_bias:
                if (store(m, thread, bias_word, 0)) go(fence_all);
                return;
            case fence_all:
                if (options_.fenced)
                    for (int other = 0; other < model_threads; ++other) drain(m, other);
                return go(look_inside);
            case look_inside:
                if (load(m, thread, inside_of(its.revoked - 1)) == 0) go(work_with_mutex);
                return;
            case work_with_mutex:
                visit_both(m, thread, visit);
                return;
            case give_bias:
                if (store(m, thread, bias_word, me)) go(unlock_mutex);
                return;
            case unlock_mutex:
                if (!store(m, thread, mutex_word, 0)) return;
                its.revoked = 0;
                end_round(its);
                return visit(m);
            default:
                return;
        }
    }
    // With and without getting the bias.
    template <typename Visit>
    static void visit_both(Model m, int thread, const Visit &visit) {
        for (const ModelStep next : {give_bias, unlock_mutex}) {
            m.threads[at(thread)].step = next;
            visit(m);
        }
    }

    const Options options_;
    std::set<Model> seen_;
};

TEST(BiasedLockModel, NeverHasTwoThreadsInside) {
    Explorer explorer({});
    EXPECT_FALSE(explorer.finds_two_inside());
    EXPECT_GT(explorer.states(), 1000u);
}

TEST(BiasedLockModel, WouldHaveTwoThreadsInsideWithoutTheFence) {
    EXPECT_TRUE(Explorer({.fenced = false}).finds_two_inside());
}

TEST(BiasedLockModel, WouldHaveTwoThreadsInsideIfOwnersSharedAWord) {
    EXPECT_TRUE(Explorer({.one_inside_word = true}).finds_two_inside());
}

}  // namespace
}  // namespace vescomm::internal
