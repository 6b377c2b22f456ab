// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "base/failure.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"

namespace vescomm::internal {
namespace {

// Longer than a working machine ever takes.
constexpr auto hang = std::chrono::seconds(60);

TEST(Failure, IsVisibleOnlyAfterItHasBeenRecorded) {
    Failure failure;
    bool broken = true;
    vescomm_status_t status = VESCOMM_OK;
    failure.record_first([&](vescomm_status_t recorded, const std::string &why) {
        broken = failure.broken();
        status = recorded;
        EXPECT_EQ(why, "cause");
    });
    EXPECT_TRUE(failure.set(VESCOMM_ERROR_TIMEOUT, "cause"));
    EXPECT_FALSE(broken);
    EXPECT_EQ(status, VESCOMM_ERROR_TIMEOUT);
    EXPECT_TRUE(failure.broken());
}

TEST(Failure, CanBeReadWhileASlowRecorderRuns) {
    auto failure = std::make_shared<Failure>();
    auto go_on = std::make_shared<std::promise<void>>();
    auto recording = std::make_shared<std::promise<void>>();
    failure->record_first([=](vescomm_status_t, const std::string &) {
        recording->set_value();
        go_on->get_future().wait();
    });
    std::thread setter([=] { failure->set(VESCOMM_ERROR_ABORTED, "cause"); });
    recording->get_future().wait();
    auto asked = std::make_shared<std::promise<bool>>();
    auto answer = asked->get_future();
    std::thread reader([=] {
        failure->check();  // not visible yet: does not throw
        asked->set_value(failure->status() == VESCOMM_ERROR_ABORTED && failure->why() == "cause");
    });
    const bool answered = answer.wait_for(hang) == std::future_status::ready;
    EXPECT_TRUE(answered) << "reading waits for the recorder";
    go_on->set_value();
    setter.join();
    reader.join();
    EXPECT_TRUE(!answered || answer.get());
    EXPECT_TRUE(failure->broken());
}

TEST(Failure, IsVisibleToEveryThreadAfterSet) {
    for (int round = 0; round < 100; ++round) {
        Failure failure;
        std::atomic<int> first{0}, notified{0}, recorded{0};
        failure.on_first([&] { ++notified; });
        failure.record_first([&](vescomm_status_t, const std::string &) {
            std::this_thread::yield();
            ++recorded;
        });
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([&, i] {
                first += failure.set(VESCOMM_ERROR_SYSTEM, std::to_string(i)) ? 1 : 0;
                EXPECT_TRUE(failure.broken());
                EXPECT_THROW(failure.check(), Error);
            });
        for (std::thread &thread : threads) thread.join();
        EXPECT_EQ(first, 1);
        EXPECT_EQ(notified, 1);
        EXPECT_EQ(recorded, 1);
    }
}

TEST(Failure, RunsACallbackThatIsSetWhileRecordingOnceVisible) {
    Failure failure;
    bool visible = false;
    failure.record_first([&](vescomm_status_t, const std::string &) {
        failure.on_first([&] { visible = failure.broken(); });
        EXPECT_FALSE(visible);
    });
    failure.set(VESCOMM_ERROR_SYSTEM, "cause");
    EXPECT_TRUE(visible);
}

}  // namespace
}  // namespace vescomm::internal
