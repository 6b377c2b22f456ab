// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Destruction of the C++ owner of a running request: nothing is written afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <stdexcept>
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
        auto options = vescomm_comm_options_init();
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

// A forgotten type must not read twice the bytes of a 16-bit source.
TEST(RequestHpp, TheTypeOfASourceIsThatOfTheBuffer) {
    run_pair(60, [](Communicator &comm) {
        const std::vector<std::int64_t> counts = {3, 5};
        auto of_buffer = vescomm_buffer_options_init();
        of_buffer.type = VESCOMM_BF16;
        const vescomm::Buffer buffer(comm, vescomm::Layout::from_counts(counts), of_buffer);
        const auto mine = static_cast<std::size_t>(counts[static_cast<std::size_t>(comm.rank())]);
        // Not one element more: the sanitizer finds a read past the end.
        std::vector<std::uint16_t> source(mine, comm.rank() == 0 ? 0x3f80 : 0x4000);
        auto options = vescomm_request_options_init();
        options.source = source.data();
        Request::all_gather_v(comm, buffer, options).run();
        const auto all = buffer.data<std::uint16_t>();
        const std::vector<std::uint16_t> should = {0x3f80, 0x3f80, 0x3f80, 0x4000,
                                                   0x4000, 0x4000, 0x4000, 0x4000};
        EXPECT_TRUE(std::ranges::equal(all, should));
        // The sum of both buffers, in the type of the buffer.
        std::vector<std::uint16_t> sum(mine);
        options = vescomm_request_options_init();
        options.output = sum.data();
        Request::reduce_scatter_v(comm, buffer, options).run();
        EXPECT_EQ(sum, std::vector<std::uint16_t>(mine, comm.rank() == 0 ? 0x4000 : 0x4080));
        comm.finalize();
    });
}

// The address of the shard means in place, as NULL does. Any other overlap is refused.
TEST(RequestHpp, TheShardsOwnAddressIsInPlace) {
    run_pair(60, [](Communicator &comm) {
        const std::vector<std::int64_t> counts = {3, 5};
        const vescomm::Buffer buffer(comm, vescomm::Layout::from_counts(counts));
        const auto shard = buffer.shard<float>();
        std::ranges::fill(shard, static_cast<float>(comm.rank() + 1));
        auto options = vescomm_request_options_init();
        options.source = shard.data();
        Request::all_gather_v(comm, buffer, options).run();
        EXPECT_TRUE(std::ranges::equal(buffer.data<float>(), Floats{1, 1, 1, 2, 2, 2, 2, 2}));
        options = vescomm_request_options_init();
        options.output = shard.data();
        Request::reduce_scatter_v(comm, buffer, options).run();
        EXPECT_TRUE(std::ranges::equal(shard, Floats(shard.size(), comm.rank() == 0 ? 2.F : 4.F)));

        options.output = shard.data() - (comm.rank() == 0 ? -1 : 1);
        EXPECT_THROW(Request::reduce_scatter_v(comm, buffer, options), vescomm::Error);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("overlaps buffer"), std::string::npos)
            << vescomm_get_last_error();
    });
}

TEST(RequestHpp, DestructorWaitsForARunningOperation) {
    std::latch started(1);
    run_pair(60, [&](Communicator &comm) {
        Floats mine(count, 1), sum(count, 0);
        if (comm.rank() == 1) {
            started.wait();
            vescomm::all_reduce(comm, mine, sum);
        } else {
            {
                Request request;
                vescomm::all_reduce(comm, mine, sum, VESCOMM_SUM, &request);
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
            vescomm::all_reduce(comm, mine, sum);
        } else {
            Request request;
            vescomm::all_reduce(comm, mine, sum, VESCOMM_SUM, &request);
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
                vescomm::all_reduce(comm, mine, sum);
                comm.barrier();
            };
            EXPECT_THROW(reduce_late(), vescomm::Error);
        } else {
            {
                Request request;
                vescomm::all_reduce(comm, mine, sum, VESCOMM_SUM, &request);
            }
            std::ranges::fill(sum, -1.0f);
            gone.count_down();
            EXPECT_THROW(comm.barrier(), vescomm::Error);
            EXPECT_EQ(overwritten(sum), 0);
        }
    });
}

// Rank 1 sends only when rank 0 has left the scope of its receive.
TEST(RequestHpp, AnExceptionThatEndsARunningRequestAbortsBeforeTheWait) {
    std::latch left(1);
    run_pair(5, [&](Communicator &comm) {
        vescomm_status_t status = VESCOMM_OK;
        try {
            if (comm.rank() == 0) {
                Floats data(count);
                try {
                    Request request;
                    vescomm::receive(comm, data, 1, &request);
                    throw std::runtime_error("mine");
                } catch (const std::runtime_error &) {
                    left.count_down();
                }
            } else {
                left.wait();
            }
            comm.barrier();
        } catch (const vescomm::Error &error) {
            status = error.status();
        }
        // Not a timeout.
        EXPECT_EQ(status, VESCOMM_ERROR_ABORTED);
    });
}

TEST(RequestHpp, AnExceptionThatEndsACompleteRequestDoesNotAbort) {
    run_pair(60, [](Communicator &comm) {
        Floats array(count, 1);
        try {
            Request complete, moved;
            vescomm::all_reduce(comm, array, VESCOMM_SUM, &complete);
            complete.wait();
            moved = std::move(complete);
            throw std::runtime_error("mine");
        } catch (const std::runtime_error &) {
            comm.barrier();
        }
        EXPECT_EQ(array, Floats(count, 2));
        comm.finalize();
    });
}

// An assignment exchanges the communicators of the requests too.
TEST(RequestHpp, ARequestAbortsItsOwnCommunicator) {
    run_pair(60, [](Communicator &comm) {
        Communicator other = comm.dup();
        Floats data(count);
        try {
            Request on_other = Request::barrier(other), running;
            vescomm::receive(comm, data, 1 - comm.rank(), &running);
            std::swap(on_other, running);
            throw std::runtime_error("mine");
        } catch (const std::runtime_error &) {
            other.barrier();
        }
        EXPECT_THROW(comm.barrier(), vescomm::Error);
        other.finalize();
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

// The function of vescomm_set_interrupt() ends a wait, but not that of a destructor.
TEST(RequestHpp, AnInterruptedWaitThrowsAndTheDestructorStillWaits) {
    static thread_local bool impatient = false;
    static std::atomic<int> interrupts{0};
    vescomm_set_interrupt(
        [](void *) {
            if (!impatient) return 0;
            ++interrupts;
            interrupts.notify_all();
            return 1;
        },
        nullptr);
    run_pair(60, [](Communicator &comm) {
        Floats array(count, 1);
        if (comm.rank() == 0) {
            Request request;
            vescomm::all_reduce(comm, array, VESCOMM_SUM, &request);
            impatient = true;
            try {
                request.wait();
                ADD_FAILURE() << "not interrupted";
            } catch (const vescomm::Error &error) {
                EXPECT_EQ(error.status(), VESCOMM_IN_PROGRESS) << error.what();
            }
            request = {};
            impatient = false;
        } else {
            // Until the destructor of rank 0 waits.
            for (int seen = 0; seen < 4; seen = interrupts) interrupts.wait(seen);
            vescomm::all_reduce(comm, array);
        }
        EXPECT_EQ(array, Floats(count, 2));
        comm.finalize();
    });
    vescomm_set_interrupt(nullptr, nullptr);
}

}  // namespace
