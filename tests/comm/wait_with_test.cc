// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm_request_wait_with(): waits that make progress on other communicators.
#include <array>
#include <atomic>
#include <latch>

#include "support/array_calls.h"

namespace vescomm::internal::testing_support {
namespace {

constexpr std::size_t communicators = 3;

class WaitWith : public ::testing::TestWithParam<TestSetup> {
protected:
    static void run(const TestSetup &setup,
                    const std::function<void(const std::vector<vescomm_comm_t *> &)> &body) {
        const std::vector<TestSetup> setups(communicators, setup);
        run_array_ranks(setups, body);
    }
};

// Rank r waits on communicator r first. A rank that waits on another one moves the bytes that rank
// r needs.
TEST_P(WaitWith, CompletesWaitsInDifferentOrders) {
    const auto ranks = static_cast<float>(GetParam().ranks());
    run(GetParam(), [&](const std::vector<vescomm_comm_t *> &comms) {
        const auto rank = static_cast<std::size_t>(comms[0]->value->rank());
        for (int round = 0; round < 20; ++round) {
            std::vector<Floats> data;
            for (std::size_t i = 0; i < comms.size(); ++i)
                data.emplace_back(20000 + 7 * i, static_cast<float>(i + 1));
            std::array<vescomm_request_t *, communicators> requests{};
            for (std::size_t i = 0; i < comms.size(); ++i)
                check(sum(comms[i], data[i], &requests[i]));
            for (std::size_t i = 0; i < comms.size(); ++i) {
                const std::size_t next = (rank + i) % comms.size();
                ASSERT_EQ(vescomm_request_wait_with(requests[next], comms.data(), comms.size()),
                          VESCOMM_OK)
                    << vescomm_get_last_error();
                EXPECT_EQ(data[next],
                          Floats(data[next].size(), ranks * static_cast<float>(next + 1)));
                check(vescomm_request_free(requests[next]));
            }
        }
    });
}

TEST_P(WaitWith, NamesTheRankAfterTheTimeout) {
    std::latch ended(GetParam().ranks() - 1);
    run(hurried(GetParam()), [&](const std::vector<vescomm_comm_t *> &comms) {
        if (comms[0]->value->rank() == 1) return ended.wait();
        Floats data(3000, 1);
        vescomm_request_t *request = nullptr;
        check(sum(comms[1], data, &request));
        const vescomm_status_t status =
            vescomm_request_wait_with(request, comms.data(), comms.size());
        EXPECT_EQ(status, VESCOMM_ERROR_TIMEOUT);
        const std::string why = vescomm_get_last_error();
        EXPECT_NE(why.find("all_reduce of 3000 f32"), std::string::npos) << why;
        EXPECT_NE(why.find("waited 1 s for"), std::string::npos) << why;
        check(vescomm_request_free(request));
        ended.count_down();
    });
}

TEST_P(WaitWith, FailsIfTheRankHasLeft) {
    run(GetParam(), [&](const std::vector<vescomm_comm_t *> &comms) {
        if (comms[0]->value->rank() == 1) return comms[1]->value->leave();
        Floats data(3000, 1);
        vescomm_request_t *request = nullptr;
        check(sum(comms[1], data, &request));
        EXPECT_EQ(vescomm_request_wait_with(request, comms.data(), comms.size()),
                  VESCOMM_ERROR_MISMATCH)
            << vescomm_get_last_error();
        EXPECT_NE(std::string(vescomm_get_last_error()).find("finalized its communicator"),
                  std::string::npos)
            << vescomm_get_last_error();
        check(vescomm_request_free(request));
    });
}

TEST_P(WaitWith, ReturnsTheErrorOfAnotherCommunicatorAndTheRequestGoesOn) {
    std::latch failed(GetParam().ranks() - 1);
    run(GetParam(), [&](const std::vector<vescomm_comm_t *> &comms) {
        // All ranks have left the calls on the third one before it is aborted.
        for (const std::size_t i : {2, 1, 0}) expect_in_step(comms[i]);
        Floats data(3000, 1);
        vescomm_request_t *request = nullptr;
        if (comms[0]->value->rank() == 1) {
            check(vescomm_comm_abort(comms[2], "the test aborts the third one"));
            failed.wait();
            check(sum(comms[0], data, &request));
        } else {
            check(sum(comms[0], data, &request));
            EXPECT_EQ(vescomm_request_wait_with(request, comms.data(), comms.size()),
                      VESCOMM_ERROR_ABORTED);
            EXPECT_NE(std::string(vescomm_get_last_error()).find("the third one"),
                      std::string::npos)
                << vescomm_get_last_error();
            failed.count_down();
        }
        EXPECT_EQ(vescomm_request_wait_with(request, comms.data(), 2), VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_EQ(data, Floats(3000, static_cast<float>(GetParam().ranks())));
        check(vescomm_request_free(request));
        expect_in_step(comms[1]);
    });
}

// Ranks are threads: only the threads that set this end their waits.
thread_local bool impatient = false;

TEST_P(WaitWith, ReturnsIfTheProgramInterruptsIt) {
    std::atomic<bool> interrupted = false;
    check(vescomm_set_interrupt([](void *) { return impatient ? 1 : 0; }, nullptr));
    run(GetParam(), [&](const std::vector<vescomm_comm_t *> &comms) {
        Floats data(3000, 1);
        vescomm_request_t *request = nullptr;
        if (comms[0]->value->rank() == 0) {
            check(sum(comms[1], data, &request));
            impatient = true;
            EXPECT_EQ(vescomm_request_wait_with(request, comms.data(), comms.size()),
                      VESCOMM_IN_PROGRESS);
            impatient = false;
            interrupted = true;
            interrupted.notify_all();
        } else {
            interrupted.wait(false);
            check(sum(comms[1], data, &request));
        }
        EXPECT_EQ(vescomm_request_wait_with(request, comms.data(), comms.size()), VESCOMM_OK);
        EXPECT_EQ(data, Floats(3000, static_cast<float>(GetParam().ranks())));
        check(vescomm_request_free(request));
    });
    check(vescomm_set_interrupt(nullptr, nullptr));
}

TestSetup with_progress(TestSetup setup, const char *progress) {
    setup.config.progress = progress;
    return setup;
}

INSTANTIATE_TEST_SUITE_P(Everywhere, WaitWith,
                         ::testing::Values(two, three, TestSetup{Kind::loopback, {0, 1, 2}},
                                           with_progress({Kind::tcp, {0, 0, 1}}, "inline"),
                                           with_progress({Kind::tcp, {0, 0, 1}}, "thread")),
                         [](const auto &info) {
                             return name_of(info.param) + "_" + info.param.config.progress;
                         });

TEST(WaitWithArguments, AreChecked) {
    run_array_ranks(TestSetup{Kind::node, {0}}, [](vescomm_comm_t *comm) {
        Floats data(30, 1);
        vescomm_request_t *request = nullptr;
        check(sum(comm, data, &request));
        EXPECT_REFUSED(vescomm_request_wait_with(nullptr, &comm, 1), "request is NULL");
        EXPECT_REFUSED(vescomm_request_wait_with(request, nullptr, 2), "comms is NULL");
        vescomm_comm_t *none = nullptr;
        EXPECT_REFUSED(vescomm_request_wait_with(request, &none, 1), "an entry of comms is NULL");
        EXPECT_EQ(vescomm_request_wait_with(request, nullptr, 0), VESCOMM_OK);
        check(vescomm_request_free(request));
    });
}

}  // namespace
}  // namespace vescomm::internal::testing_support
