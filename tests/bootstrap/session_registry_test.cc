// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/session_registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace vescomm::internal {
namespace {

const std::string key = "0/2 127.0.0.1:1";

Deadline later() {
    return Deadline::after(60);
}

struct FakeSession {
    std::atomic<bool> intact = true;
};

using Registry = SessionRegistry<FakeSession>;

const auto if_intact = [](const std::shared_ptr<FakeSession> &session) {
    return session->intact.load();
};

TEST(SessionRegistry, MakesASessionOnceAndReturnsIt) {
    Registry registry;
    auto found = registry.find_or_begin(key, later(), if_intact);
    ASSERT_TRUE(found);
    ASSERT_EQ(*found, nullptr);
    const auto session = std::make_shared<FakeSession>();
    registry.made(key, session);
    found = registry.find_or_begin(key, later(), if_intact);
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, session);
    found = registry.find_or_begin("another key", later(), if_intact);
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, nullptr);
}

TEST(SessionRegistry, BeginsAgainAfterAFailureAndAfterTheEndOfASession) {
    Registry registry;
    for (int i = 0; i < 3; ++i) {
        const auto found = registry.find_or_begin(key, later(), if_intact);
        ASSERT_TRUE(found);
        ASSERT_EQ(*found, nullptr);
        // Null is a failure; the other session ends at once.
        registry.made(key, i == 0 ? nullptr : std::make_shared<FakeSession>());
    }
}

TEST(SessionRegistry, EndsAWaitForAnotherThreadAtTheDeadline) {
    Registry registry;
    ASSERT_TRUE(registry.find_or_begin(key, later(), if_intact));
    EXPECT_FALSE(registry.find_or_begin(key, Deadline::after(0.01), if_intact));
}

TEST(SessionRegistry, EndsAWaitForAnotherThreadThatTheProgramInterrupts) {
    Registry registry;
    ASSERT_TRUE(registry.find_or_begin(key, later(), if_intact));
    set_interrupt([](void *) { return 1; }, nullptr);
    EXPECT_FALSE(registry.find_or_begin(key, later(), if_intact));
    set_interrupt(nullptr, nullptr);
    // The waiter is forgotten.
    registry.made(key, std::make_shared<FakeSession>());
}

// Otherwise a thread that sleeps there could miss all of a creation that overlaps with its own.
TEST(SessionRegistry, GivesAMadeSessionToWaitingThreadsBeforeItsMakerGoesOn) {
    Registry registry;
    ASSERT_TRUE(registry.find_or_begin(key, later(), if_intact));
    std::atomic<int> adopted = 0;
    const auto session = std::make_shared<FakeSession>();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread)
        threads.emplace_back([&] {
            const auto found = registry.find_or_begin(
                key, later(), if_intact, [&](const std::shared_ptr<FakeSession> &) { ++adopted; });
            EXPECT_TRUE(found && *found == session);
        });
    while (registry.waiting(key) < threads.size()) std::this_thread::yield();
    registry.made("another key", std::make_shared<FakeSession>());
    EXPECT_EQ(registry.waiting(key), threads.size());
    registry.made(key, session);
    EXPECT_EQ(adopted, 3);
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(registry.waiting(key), 0u);
}

TEST(SessionRegistry, ThreadsThatWaitTryThemselvesAfterAFailure) {
    Registry registry;
    ASSERT_TRUE(registry.find_or_begin(key, later(), if_intact));
    std::thread other([&] {
        const auto found = registry.find_or_begin(key, later(), if_intact);
        EXPECT_TRUE(found && *found == nullptr);
    });
    while (registry.waiting(key) == 0) std::this_thread::yield();
    registry.made(key, nullptr);
    other.join();
    EXPECT_EQ(registry.waiting(key), 0u);
}

// While one thread finds that a session has ended, another thread makes the next one. Both must use
// it: other ranks have joined it, and wait for this rank there.
TEST(SessionRegistry, UsesASessionMadeWhileTheLastOneWasTried) {
    Registry registry;
    ASSERT_TRUE(registry.find_or_begin(key, later(), if_intact));
    auto ended = std::make_shared<FakeSession>();
    ended->intact = false;
    registry.made(key, ended);
    const auto next = std::make_shared<FakeSession>();
    const auto found =
        registry.find_or_begin(key, later(), [&](const std::shared_ptr<FakeSession> &session) {
            if (session != ended) return true;
            const auto other = registry.find_or_begin(key, later(), if_intact);
            EXPECT_TRUE(other && *other == nullptr);
            registry.made(key, next);
            ended.reset();
            return false;
        });
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, next);
}

// No two sessions of a key are intact at the same time, whatever threads do.
TEST(SessionRegistry, HasOneIntactSessionAmongThreads) {
    Registry registry;
    std::atomic<FakeSession *> current = nullptr;
    std::atomic<int> made = 0;
    std::vector<std::thread> threads;
    std::vector<std::vector<std::shared_ptr<FakeSession>>> kept_by(4);
    for (unsigned thread = 0; thread < 4; ++thread)
        threads.emplace_back([&, thread] {
            std::mt19937 random(thread);
            // A session that nobody holds would end without notice.
            std::vector<std::shared_ptr<FakeSession>> &kept = kept_by[thread];
            for (int i = 0; i < 2000; ++i) {
                const auto found = registry.find_or_begin(key, later(), if_intact);
                ASSERT_TRUE(found);
                std::shared_ptr<FakeSession> session = *found;
                if (!session) {
                    ++made;
                    session = std::make_shared<FakeSession>();
                    ASSERT_EQ(current.exchange(session.get()), nullptr);
                    registry.made(key, session);
                }
                kept.push_back(session);
                FakeSession *mine = session.get();
                if (random() % 3 == 0 && current.compare_exchange_strong(mine, nullptr))
                    session->intact = false;
            }
        });
    for (std::thread &thread : threads) thread.join();
    EXPECT_GT(made, 4);
}

}  // namespace
}  // namespace vescomm::internal
