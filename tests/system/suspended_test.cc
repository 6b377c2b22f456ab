// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A job is suspended as a whole for longer than its timeout, as by SIGSTOP of a batch system, while
// one rank waits for another one. It goes on afterwards.
#include <poll.h>

#include <array>
#include <chrono>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;
using Clock = std::chrono::steady_clock;

constexpr double timeout = 5;
constexpr auto suspended = std::chrono::seconds(8);
// Long enough that a rank sleeps in its wait.
constexpr auto in_the_wait = std::chrono::milliseconds(300);

struct Pipe {
    Pipe() { expect(pipe(ends.data()) == 0, "a pipe"); }
    void write_byte() const { expect(write(ends[1], "x", 1) == 1, "a write"); }
    void read_byte() const {
        char byte = 0;
        expect(read(ends[0], &byte, 1) == 1, "a read");
    }

    std::array<int, 2> ends{};
};

void let_pass(Clock::duration time) {
    for (const auto end = Clock::now() + time; Clock::now() < end;) poll(nullptr, 0, 100);
}

void run_suspended(int per_node) {
    Job job{.ranks = 2, .per_node = per_node, .timeout_seconds = timeout};
    const Pipe ready, go_on;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < job.ranks; ++rank) {
        const pid_t process = fork();
        if (process == 0) {
            alarm(job.max_seconds);
            vescomm_comm_t *comm = nullptr;
            require(job.create(rank, "", &comm), "create");
            expect_sum(comm, 1, 2);
            ready.write_byte();
            if (rank == 0) go_on.read_byte();
            expect_sum(comm, 1, 2);  // rank 1 waits here for rank 0
            require(vescomm_comm_free(comm), "free");
            _exit(0);
        }
        processes.push_back(process);
    }
    ready.read_byte();
    ready.read_byte();
    let_pass(in_the_wait);
    for (const pid_t process : processes) kill(process, SIGSTOP);
    let_pass(suspended);
    for (const pid_t process : processes) kill(process, SIGCONT);
    let_pass(in_the_wait);
    go_on.write_byte();
    for (const pid_t process : processes) {
        int status = 0;
        waitpid(process, &status, 0);
        EXPECT_EQ(status, 0);
    }
}

TEST(SuspendedJob, GoesOnOnOneNode) {
    run_suspended(2);
}

TEST(SuspendedJob, GoesOnOnTwoNodes) {
    run_suspended(1);
}

}  // namespace
