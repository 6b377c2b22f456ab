// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Destruction of the C++ owner of a running request: nothing is written afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <latch>
#include <thread>

#include "support/free_port.h"
#include "vescomm/vescomm.hpp"

namespace {

using vescomm::Communicator;
using vescomm::Request;
using vescomm::internal::testing_support::free_address;

constexpr std::size_t count = 1000;
using Floats = std::vector<float>;

// Runs `body` on two ranks, which are threads of this process.
void run_pair(double timeout_seconds, const std::function<void(Communicator &)> &body) {
    const std::string address = free_address();
    const auto rank = [&](int number) {
        auto options = vescomm_comm_options();
        options.timeout_seconds = timeout_seconds;
        options.node = "one";
        Communicator comm(number, 2, address, "a secret of this test", &options);
        body(comm);
    };
    std::thread other([&] { rank(1); });
    rank(0);
    other.join();
}

std::ptrdiff_t overwritten(const Floats &array) {
    return std::ranges::count_if(array, [](float element) { return element != -1; });
}

TEST(RequestHpp, DestructorWaitsForARunningOperation) {
    std::latch started(1);
    run_pair(60, [&](Communicator &comm) {
        Floats mine(count, 1), sum(count, 0);
        if (comm.rank() == 1) {
            started.wait();
            vescomm::all_reduce<float>(comm, mine, sum);
        } else {
            {
                Request request;
                vescomm::all_reduce<float>(comm, mine, sum, VESCOMM_SUM, &request);
                started.count_down();
            }
            EXPECT_EQ(sum, Floats(count, 2));
            // From here on the memory must not be written by the operation.
            std::ranges::fill(sum, -1.0f);
        }
        comm.barrier();
        comm.barrier();
        EXPECT_EQ(comm.rank() == 0 ? overwritten(sum) : 0, 0);
    });
}

TEST(RequestHpp, AssignmentWaitsForARunningOperation) {
    std::latch started(1);
    run_pair(60, [&](Communicator &comm) {
        Floats mine(count, 1), sum(count, 0);
        if (comm.rank() == 1) {
            started.wait();
            vescomm::all_reduce<float>(comm, mine, sum);
        } else {
            Request request;
            vescomm::all_reduce<float>(comm, mine, sum, VESCOMM_SUM, &request);
            started.count_down();
            request = Request();
            std::ranges::fill(sum, -1.0f);
        }
        comm.barrier();
        comm.barrier();
        EXPECT_EQ(comm.rank() == 0 ? overwritten(sum) : 0, 0);
    });
}

// The other rank does not call the collective before the timeout.
TEST(RequestHpp, WritesNothingAfterAFailedWait) {
    std::latch gone(1);
    run_pair(1, [&](Communicator &comm) {
        Floats mine(count, 1), sum(count, 0);
        if (comm.rank() == 1) {
            gone.wait();
            // Its part may be complete before it observes the failure of rank 0.
            const auto reduce_late = [&] {
                vescomm::all_reduce<float>(comm, mine, sum);
                comm.barrier();
            };
            EXPECT_THROW(reduce_late(), vescomm::Error);
        } else {
            {
                Request request;
                vescomm::all_reduce<float>(comm, mine, sum, VESCOMM_SUM, &request);
            }
            std::ranges::fill(sum, -1.0f);
            gone.count_down();
            EXPECT_THROW(comm.barrier(), vescomm::Error);
            EXPECT_EQ(overwritten(sum), 0);
        }
    });
}

TEST(RequestHpp, DestructorDoesNotWaitIfNothingIsRunning) {
    Communicator comm = Communicator::from_environment();
    Request never = Request::barrier(comm);
    Request complete = Request::barrier(comm);
    complete.run();
    const Request moved = std::move(complete);
    EXPECT_EQ(complete.get(), nullptr);
}

}  // namespace
