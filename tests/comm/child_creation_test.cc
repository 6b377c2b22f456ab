// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank stops in the middle of the creation of a communicator from another one. The creation ends
// with the parent: at its deadline, and when it fails. The new communicator's own timeout is a day.
#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <thread>

#include "api/handles.h"
#include "comm/split.h"
#include "support/free_port.h"

namespace vescomm::internal {
namespace {

constexpr int ranks = 3;
constexpr int stopped = 2;
constexpr double seconds_of_a_day = 86400;

// Duplicates a communicator of three ranks. The last part of the creation is `complete`; the
// stopped rank calls `stop` instead, and does not continue before the other ranks have their
// errors, which `expect` gets.
void create_child(double parent_timeout, const Complete &complete,
                  const std::function<void(Communicator &parent)> &stop,
                  const std::function<void(const Error &)> &expect) {
    const std::string address = testing_support::free_address();
    std::latch ended(ranks - 1);
    const auto run = [&](int rank) {
        CommOptions options;
        options.timeout_seconds = parent_timeout;
        const auto parent =
            connect_explicitly(rank, ranks, address, "a secret of this test", options);
        CommOptions child_options;
        child_options.timeout_seconds = seconds_of_a_day;
        std::optional<Error> error;
        try {
            duplicate(*parent, child_options, [&](const std::shared_ptr<Communicator> &child) {
                if (rank != stopped) return complete(child);
                stop(*parent);
                ended.wait();
            });
        } catch (const Error &caught) {
            error = caught;
        }
        if (rank == stopped) return;
        ended.count_down();
        if (error) expect(*error);
        else ADD_FAILURE() << "the creation succeeded on rank " << rank;
    };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
    for (std::thread &thread : threads) thread.join();
}

TEST(ChildCreation, EndsAtTheDeadlineOfTheParent) {
    create_child(
        1,
        [](const std::shared_ptr<Communicator> &child) {
            EXPECT_EQ(child->timeout_seconds(), seconds_of_a_day);
            if (child->deadline().seconds_left() > 1)
                throw Error(VESCOMM_ERROR_INTERNAL, "the creation has a later deadline");
            Calls::create(child);
        },
        [](Communicator &) {},
        [](const Error &error) {
            EXPECT_EQ(error.status, VESCOMM_ERROR_TIMEOUT) << error.what();
            EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
        });
}

TEST(ChildCreation, EndsWhenTheParentFails) {
    // Far above the duration of the test.
    constexpr double timeout = 60;
    create_child(
        timeout,
        [](const std::shared_ptr<Communicator> &child) {
            child->gather("a part of the creation", {}, Deadline::after(timeout));
        },
        [](Communicator &parent) { parent.abort("the parent has failed"); },
        [](const Error &error) {
            EXPECT_EQ(error.status, VESCOMM_ERROR_ABORTED) << error.what();
            EXPECT_NE(std::string(error.what()).find("the parent has failed"), std::string::npos)
                << error.what();
        });
}

TEST(ChildCreation, LeavesItsOwnTimeout) {
    const auto parent = connect_explicitly(0, 1, "", "", {});
    CommOptions options;
    options.timeout_seconds = seconds_of_a_day;
    const auto child = duplicate(*parent, options);
    EXPECT_GT(child->deadline().seconds_left(), parent->timeout_seconds());
    parent->abort("the parent has failed");
    EXPECT_FALSE(child->failure().broken());
}

}  // namespace
}  // namespace vescomm::internal
