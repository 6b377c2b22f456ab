// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Another user of the machine connects to every TCP port and every Unix socket of a job, all its
// life, and sends nonsense. An impostor of that user claims to be a rank, without the secret. The
// job does not notice. Needs root, to become another user.
//
//     VESCOMM_TEST_REPETITIONS    connections of each test
#include <grp.h>

#include <thread>

#include "system/strangers.h"

namespace {

using namespace forked_ranks;
using namespace strangers;

constexpr uid_t other_user = 65534;

struct Shared {
    Targets targets;
    std::atomic<int> jobs;  // communicators that were made and freed
    std::atomic<int> attempts;  // of the impostor
    std::atomic<int> joined;
};

void become_other_user() {
    expect(setgroups(0, nullptr) == 0 && setgid(other_user) == 0 && setuid(other_user) == 0,
           "another user");
}

// Everything in the life of a communicator that opens sockets.
void live(const Job &job, int rank, bool &done, const std::atomic<bool> &enough) {
    vescomm_comm_t *comm = nullptr, *copy = nullptr;
    require(job.create(rank, nullptr, &comm), "create");
    for (int i = 0; i < 20; ++i) {
        expect_sum(comm, 1, static_cast<float>(job.ranks), 3000);
        vescomm_memory_options_t options = vescomm_memory_options();
        options.bytes = 50'000;
        vescomm_memory_t *memory = nullptr;
        require(vescomm_memory_create(comm, &options, &memory), "memory");
        require(vescomm_memory_free(memory), "free memory");
    }
    require(vescomm_comm_dup(comm, nullptr, &copy), "dup");
    expect_sum(copy, 2, static_cast<float>(2 * job.ranks));
    require(vescomm_comm_free(copy), "free");
    // All ranks end after the same round.
    float over = enough ? 1 : 0;
    require(vescomm_all_reduce(comm, &over, &over, 1, VESCOMM_F32, VESCOMM_MAX, nullptr, nullptr),
            "all_reduce");
    done = over > 0;
    require(vescomm_comm_free(comm), "free");
}

class OtherUser : public ::testing::Test {
protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    }

    // `ports`: the other user visits all of them, or only the one where ranks meet.
    static void run_visited(int ranks, int per_node, const char *transport, bool all_ports) {
        const Job job{ranks, per_node};
        const std::int64_t visits = repetitions(1000);
        Job patient = job;
        patient.max_seconds = 100 + static_cast<unsigned>(visits / 50);
        Shared *shared = make_shared_page<Shared>();
        Targets &targets = shared->targets;
        std::atomic<bool> &enough = targets.over;
        {
            if (!all_ports) targets.only_port = job.port;
            record_hello(targets);
            const auto scout = make_scout(targets);
            const Process visitor([&] {
                become_other_user();
                Stranger stranger(targets, 1);
                // Also when the job is not at the place where its ranks meet any more.
                while (targets.connected < visits || targets.local_visits < visits / 50 ||
                       shared->jobs < 2) {
                    stranger.visit_port();
                    stranger.visit_local();
                }
                enough = true;
                for (;;) pause();
            });
            const Process impostor([&] {
                become_other_user();
                Job its = job;
                its.timeout_seconds = 0.5;
                for (;;) {
                    vescomm_comm_t *comm = nullptr;
                    its.secret = "a secret that is another one";
                    if (its.create(1, nullptr, &comm) == VESCOMM_OK) ++shared->joined;
                    ++shared->attempts;
                }
            });
            run(patient, [&](int rank) {
                targets.processes[rank] = getpid();
                setenv("VESCOMM_TRANSPORT", transport, 1);
                setenv("VESCOMM_LOG", "error", 1);
                for (bool done = false; !done;) {
                    live(patient, rank, done, enough);
                    if (rank == 0) ++shared->jobs;
                }
            });
        }
        EXPECT_GE(targets.connected, visits);
        EXPECT_GT(targets.peak_ports, 0);
        EXPECT_GE(targets.local_visits, visits / 50);
        EXPECT_EQ(targets.elsewhere, 0) << "a port is open on another interface";
        EXPECT_EQ(shared->joined, 0);
        std::printf(
            "%lld connections and %lld datagrams, %lld refused, %d ports and %d local "
            "sockets at a time; %d communicators; the impostor tried %d times\n",
            static_cast<long long>(targets.connected), static_cast<long long>(targets.datagrams),
            static_cast<long long>(targets.refused), targets.peak_ports.load(),
            targets.peak_locals.load(), shared->jobs.load(), shared->attempts.load());
        munmap(shared, sizeof *shared);
    }
};

TEST_F(OtherUser, ChangesNothingOnOneNode) {
    run_visited(3, 3, "auto", true);
}

TEST_F(OtherUser, ChangesNothingOnSeveralNodes) {
    run_visited(4, 2, "auto", true);
}

TEST_F(OtherUser, ChangesNothingOverTcp) {
    run_visited(3, 1, "tcp", true);
}

// UCX over TCP listens by itself, which is documented as unsafe: on one interface, though, and the
// ports of the control plane stay safe.
TEST_F(OtherUser, ChangesNothingAtTheMeetingPointOfUcx) {
    run_visited(3, 2, "ucx", false);
}

}  // namespace
