// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A job is suspended as a whole for longer than its timeout, as by SIGSTOP of a batch system, while
// one rank waits for another one: in a call, while communicators are created, and while the
// survivors of a death shrink theirs. It goes on afterwards.
#include <poll.h>

#include <array>
#include <chrono>
#include <functional>

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

// Calls `ready` on both ranks, after which the job is suspended, and `late` on one of them, which
// returns afterwards.
using Body = std::function<void(int rank, const Job &job, const std::function<void()> &ready,
                                const std::function<void()> &late)>;

void run_suspended(int per_node, const Body &body) {
    Job job{.ranks = 2, .per_node = per_node, .timeout_seconds = timeout};
    const Pipe ready, go_on;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < job.ranks; ++rank) {
        const pid_t process = fork();
        if (process == 0) {
            alarm(job.max_seconds);
            body(
                rank, job, [&] { ready.write_byte(); }, [&] { go_on.read_byte(); });
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

void wait_in_a_call(int rank, const Job &job, const std::function<void()> &ready,
                    const std::function<void()> &late) {
    vescomm_comm_t *comm = nullptr;
    require(job.create(rank, "", &comm), "create");
    expect_sum(comm, 1, 2);
    ready();
    if (rank == 0) late();
    expect_sum(comm, 1, 2);  // rank 1 waits here for rank 0
    require(vescomm_comm_free(comm), "free");
}

TEST(SuspendedJob, GoesOnOnOneNode) {
    run_suspended(2, wait_in_a_call);
}

TEST(SuspendedJob, GoesOnOnTwoNodes) {
    run_suspended(1, wait_in_a_call);
}

TEST(SuspendedJob, GoesOnWhileItIsCreated) {
    for (const int late_rank : {0, 1}) {
        run_suspended(2, [&](int rank, const Job &job, const std::function<void()> &ready,
                             const std::function<void()> &late) {
            ready();
            if (rank == late_rank) late();
            vescomm_comm_t *comm = nullptr;
            require(job.create(rank, "", &comm), "create");
            expect_sum(comm, 1, 2);
            require(vescomm_comm_free(comm), "free");
        });
    }
}

TEST(SuspendedJob, GoesOnWhileItShrinks) {
    for (const int late_rank : {0, 1}) {
        run_suspended(2, [&](int rank, const Job &job, const std::function<void()> &ready,
                             const std::function<void()> &late) {
            vescomm_comm_t *comm = nullptr, *survivors = nullptr;
            require(job.create(rank, "", &comm), "create");
            vescomm_comm_abort(comm, "as after a death");
            ready();
            if (rank == late_rank) late();
            require(vescomm_comm_shrink(comm, nullptr, 0, &survivors), "shrink");
            expect_sum(survivors, 1, 2);
            require(vescomm_comm_free(comm), "free the broken one");
            require(vescomm_comm_free(survivors), "free");
        });
    }
}

}  // namespace
