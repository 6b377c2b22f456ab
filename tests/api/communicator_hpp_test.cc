// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicators that the C++ class creates from another one, and their threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <mutex>
#include <set>
#include <thread>

#include "support/free_port.h"
#include "vescomm/vescomm.hpp"

namespace {

using vescomm::Communicator;
using vescomm::internal::testing_support::free_address;

// Runs `body` on three ranks, which are threads of this process.
void run_three(const std::function<void(Communicator &)> &body) {
    const std::string address = free_address();
    const auto rank = [&](int number) {
        auto options = vescomm_comm_options_init();
        options.timeout_seconds = 60;
        options.node = "one";
        Communicator comm(number, 3, address, "a secret of this test", &options);
        body(comm);
    };
    std::thread second([&] { rank(1); }), third([&] { rank(2); });
    rank(0);
    second.join();
    third.join();
}

int sum_of_ones(const Communicator &comm) {
    std::array<int, 1> ones = {1};
    vescomm::all_reduce(comm, ones);
    return ones[0];
}

TEST(CommunicatorHpp, SplitOrdersRanksByKey) {
    run_three([](Communicator &comm) {
        // Ranks 0 and 2 in reverse order, and rank 1 in none.
        const int color = comm.rank() == 1 ? -1 : 0;
        Communicator part = comm.split(color, -comm.rank());
        EXPECT_EQ(part.get() == nullptr, comm.rank() == 1);
        if (part.get() != nullptr) {
            EXPECT_EQ(part.ranks(), 2);
            EXPECT_EQ(part.rank(), comm.rank() == 2 ? 0 : 1);
            EXPECT_EQ(sum_of_ones(part), 2);
            part.finalize();
        }
        comm.finalize();
    });
}

// The ids of all threads of this process.
std::set<int> threads() {
    std::set<int> found;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/task"))
        found.insert(std::stoi(entry.path().filename().string()));
    return found;
}

// The signals that a thread blocks; bit k - 1 is signal k.
std::uint64_t blocked_by(int thread) {
    std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
    return 0;
}

TEST(CommunicatorHpp, ThreadsOfTheLibraryBlockTheSignalsOfTheProgram) {
    std::set<int> known = threads();
    std::mutex mutex;
    setenv("VESCOMM_PROGRESS", "thread", 1);
    run_three([&](Communicator &comm) {
        {
            const std::lock_guard lock(mutex);
            known.insert(gettid());
        }
        comm.barrier();
        if (comm.rank() == 0) {
            int count = 0;
            const std::lock_guard lock(mutex);  // ThreadSanitizer does not know the barrier
            for (const int thread : threads()) {
                if (known.contains(thread)) continue;
                ++count;
                for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM})
                    EXPECT_TRUE(blocked_by(thread) >> (signal - 1) & 1) << signal;
                // The C library blocks all signals of a thread until it has started.
                for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
                    while (blocked_by(thread) >> (own - 1) & 1) std::this_thread::yield();
            }
            EXPECT_GE(count, 4) << "three progress threads, and the thread of the control plane";
        }
        comm.barrier();
        comm.finalize();
    });
    unsetenv("VESCOMM_PROGRESS");
}

TEST(CommunicatorHpp, SplitWithoutKeyKeepsTheOrder) {
    run_three([](Communicator &comm) {
        Communicator all = comm.split(0);
        EXPECT_EQ(all.rank(), comm.rank());
        EXPECT_EQ(all.ranks(), 3);
        all.finalize();
        comm.finalize();
    });
}

TEST(CommunicatorHpp, DupIsIndependentOfItsParent) {
    run_three([](Communicator &comm) {
        Communicator same = comm.dup();
        EXPECT_EQ(same.rank(), comm.rank());
        comm.finalize();
        EXPECT_EQ(sum_of_ones(same), 3);
        same.finalize();
    });
}

TEST(CommunicatorHpp, ShrinkExcludesTheNamedRanks) {
    std::latch shrunk(2);
    run_three([&](Communicator &comm) {
        if (comm.rank() == 1) {
            // This rank is alive, and the others exclude it.
            shrunk.wait();
            EXPECT_THROW(comm.barrier(), vescomm::Error);
            return;
        }
        const std::array<std::int32_t, 1> failed = {1};
        Communicator others = comm.shrink(failed);
        shrunk.count_down();
        EXPECT_EQ(others.ranks(), 2);
        EXPECT_EQ(others.rank(), comm.rank() == 2 ? 1 : 0);
        EXPECT_EQ(sum_of_ones(others), 2);
        EXPECT_THROW(comm.barrier(), vescomm::Error);
        others.finalize();
    });
}

TEST(CommunicatorHpp, FailedCallsThrow) {
    Communicator comm = Communicator::from_environment();
    comm.finalize();
    EXPECT_THROW(comm.split(0), vescomm::Error);
    EXPECT_THROW(comm.dup(), vescomm::Error);
}

}  // namespace
