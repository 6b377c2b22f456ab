// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// During the whole life of a job, another user of the machine connects to each of its TCP ports and
// Unix sockets and sends garbage. A process of that user also tries to join as a rank, with a wrong
// secret. The job must not be affected. Needs root, to become another user.
//
//     VESCOMM_TEST_REPETITIONS    connections of each test
#include <grp.h>

#include <thread>

#include "system/unauthenticated_peers.h"

namespace {

using namespace forked_ranks;
using namespace unauthenticated_peers;

constexpr uid_t other_user = 65534;

struct Shared {
    Targets targets;
    std::atomic<int> jobs;  // communicators created and freed
    std::atomic<int> attempts;  // to join with a wrong secret
    std::atomic<int> joined;  // attempts that succeeded
};

void become_other_user() {
    expect(setgroups(0, nullptr) == 0 && setgid(other_user) == 0 && setuid(other_user) == 0,
           "another user");
}

// Creates, uses and frees a communicator, with all operations that open sockets.
void live(const Job &job, int rank, bool &done, const std::atomic<bool> &enough) {
    vescomm_comm_t *comm = nullptr, *copy = nullptr;
    require(job.create(rank, nullptr, &comm), "create");
    for (int i = 0; i < 20; ++i) {
        expect_sum(comm, 1, static_cast<float>(job.ranks), 3000);
        vescomm_memory_options_t options = vescomm_memory_options_init();
        options.bytes = 50'000;
        vescomm_memory_t *memory = nullptr;
        require(vescomm_memory_create(comm, &options, &memory), "memory");
        require(vescomm_memory_free(memory), "free memory");
    }
    require(vescomm_comm_dup(comm, nullptr, &copy), "dup");
    expect_sum(copy, 2, static_cast<float>(2 * job.ranks));
    require(vescomm_comm_free(copy), "free");
    // All ranks agree on the last iteration.
    float over = enough ? 1 : 0;
    require(vescomm_all_reduce(comm, &over, &over, 1, VESCOMM_F32, VESCOMM_MAX, nullptr, nullptr,
                               nullptr),
            "all_reduce");
    done = over > 0;
    require(vescomm_comm_free(comm), "free");
}

class OtherUser : public ::testing::Test {
protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    }

    // `all_ports`: the other user connects to all ports, or only to the port of the hub.
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
            record_first_message(targets);
            const auto scout = make_scout(targets);
            const Process visitor([&] {
                become_other_user();
                UnauthenticatedPeer peer(targets, 1);
                // The hub listens only while ranks join: enough visits to a port may take several
                // communicators.
                while (targets.connected < visits || targets.port_visits < visits / 50 ||
                       targets.local_visits < visits / 50 || shared->jobs < 2) {
                    peer.visit_port();
                    peer.visit_local();
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
                    its.secret = "a wrong secret";
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
        EXPECT_GE(targets.port_visits, visits / 50);
        EXPECT_GE(targets.local_visits, visits / 50);
        EXPECT_EQ(targets.elsewhere, 0) << "a port is open on another interface";
        EXPECT_EQ(shared->joined, 0);
        std::printf(
            "%lld connections and %lld datagrams, %lld refused, %d ports and %d local "
            "sockets at a time; %d communicators; %d attempts to join\n",
            static_cast<long long>(targets.connected), static_cast<long long>(targets.datagrams),
            static_cast<long long>(targets.refused), targets.peak_ports.load(),
            targets.peak_locals.load(), shared->jobs.load(), shared->attempts.load());
        munmap(shared, sizeof *shared);
    }
};

TEST_F(OtherUser, DoesNotAffectAJobOnOneNode) {
    run_visited(3, 3, "auto", true);
}

TEST_F(OtherUser, DoesNotAffectAJobOnSeveralNodes) {
    run_visited(4, 2, "auto", true);
}

TEST_F(OtherUser, DoesNotAffectAJobOverTcp) {
    run_visited(3, 1, "tcp", true);
}

// UCX over TCP opens listening ports of its own, which are documented as unsafe. They must be on
// one interface only, and the ports of the control plane stay safe.
TEST_F(OtherUser, DoesNotAffectTheControlPlaneOfAUcxJob) {
    run_visited(3, 2, "ucx", false);
}

}  // namespace
