// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicators that share a UCX worker, where one of them ends with bytes under way.
#include <gtest/gtest.h>

#include <thread>

#include "transport/fabric_members.h"

namespace vescomm::internal {
namespace {

using namespace fabric_members;

// rdma: behaves as over RDMA. Large puts are sent by rendezvous and stay with UCX until the
// receiver has taken them. Without RDMA devices UCX uses TCP nevertheless; only_tcp() follows the
// variables.
enum class Network { tcp, rdma };

class UcxFabrics : public testing::TestWithParam<Network> {
protected:
    void SetUp() override {
        if (GetParam() == Network::tcp) return;
        setenv("VESCOMM_UCX_TLS", "tcp,self,cma", 1);
        setenv("VESCOMM_UCX_NET_DEVICES", "lo", 1);
        setenv("VESCOMM_UCX_RNDV_THRESH", "8k", 1);
    }
    void TearDown() override {
        unsetenv("VESCOMM_UCX_TLS");
        unsetenv("VESCOMM_UCX_NET_DEVICES");
        unsetenv("VESCOMM_UCX_RNDV_THRESH");
    }
};

INSTANTIATE_TEST_SUITE_P(Over, UcxFabrics, testing::Values(Network::tcp, Network::rdma),
                         [](const auto &info) {
                             return info.param == Network::tcp ? "Tcp" : "Rdma";
                         });

std::vector<int> peers_of(int rank) {
    return rank == 0 ? std::vector<int>{-1, 1} : std::vector<int>{0, -1};
}

void meet(Control &control, const char *what) {
    control.all_gather(what, "", Deadline::after(patience_seconds));
}

// An eager put waits at its receiver. A sender that stops does not wait for it, and the connection
// stays.
TEST_P(UcxFabrics, EagerPutWithoutCreditDoesNotDelayTheStopOfItsSender) {
    run_processes<UcxFabric>(2, [](Control &control, const std::shared_ptr<UcxFabric> &fabric) {
        const int rank = control.rank();
        Member good(fabric, 1, rank, peers_of(rank));
        Member bad(fabric, 2, rank, peers_of(rank));
        share(good, control);
        share(bad, control);
        const std::vector<std::byte> source(arena_bytes, std::byte{1});
        std::atomic<std::uint32_t> pending{0};
        if (rank == 0) {
            for (std::uint64_t i = 1; i <= 20; ++i) {
                ++pending;
                Put put{1, source.data(), 1, 0, 100'000, {3, 1}, i, &pending};
                put.credit = i;
                put.credit_flag = 2;
                bad.transport->put(put);
            }
            bad.failure.set(VESCOMM_ERROR_ABORTED, "by the test");
        }
        // More bytes than UCX may hold of one communicator are under way; the other one makes
        // progress.
        exchange(good, 5, 20);
        if (rank == 0) {
            bad.transport->stop();
            EXPECT_EQ(pending.load(), 0u);
            good.transport->signal(1, {7, 0}, 1);
        } else {
            good.wait_for(0, {7, 0}, 1);
        }
        exchange(good, 6, 20);
        EXPECT_FALSE(good.failure.broken()) << good.failure.why();
        EXPECT_FALSE(rank == 1 && bad.failure.broken()) << bad.failure.why();
        meet(control, "done");
    });
}

// A peer that makes no progress keeps bytes of a communicator in the network. The communicator that
// ends takes its memory back nevertheless. Other communicators with the same peer fail, and those
// with other peers continue where UCX allows it.
TEST_P(UcxFabrics, StuckBytesCloseTheConnection) {
    const bool rdma = GetParam() == Network::rdma;
    run_processes<UcxFabric>(3, [rdma](Control &control, const std::shared_ptr<UcxFabric> &fabric) {
        const int rank = control.rank();
        const auto pair = [&](std::uint32_t id, int a, int b) {
            if (rank != a && rank != b) return std::unique_ptr<Member>();
            const std::vector<int> peers =
                rank == a ? std::vector<int>{-1, b} : std::vector<int>{a, -1};
            return std::make_unique<Member>(fabric, id, rank == a ? 0 : 1, peers);
        };
        const auto stuck = pair(1, 0, 1), same = pair(2, 0, 1), other = pair(3, 0, 2);
        for (const auto *member : {&stuck, &same, &other}) {
            const auto offers =
                control.all_gather("offer", *member ? offer(**member) : std::string(),
                                   Deadline::after(patience_seconds));
            for (int peer = 0; *member && peer < 3; ++peer)
                if (peer != rank && !offers[static_cast<std::size_t>(peer)].empty())
                    (*member)->transport->accept(1, 1 - (*member)->rank,
                                                 offers[static_cast<std::size_t>(peer)]);
        }
        meet(control, "shared");
        if (rank == 0) {
            std::vector<std::byte> source(arena_bytes, std::byte{1});
            std::atomic<std::uint32_t> pending{0};
            for (std::uint64_t i = 1; i <= 40; ++i) {
                ++pending;
                stuck->transport->put({1, source.data(), 1, 0, arena_bytes, {0, 0}, i, &pending});
                fabric->progress();
            }
            stuck->failure.set(VESCOMM_ERROR_ABORTED, "by the test");
            stuck->transport->stop();
            EXPECT_EQ(pending.load(), 0u);
            // UCX must neither read nor write these any more.
            source = {};
            stuck->arena = {};
            EXPECT_TRUE(same->failure.broken());
            EXPECT_EQ(same->failure.status(), VESCOMM_ERROR_PEER_FAILED);
            EXPECT_NE(same->failure.why().find("the connection to rank 1 over UCX: another "
                                               "communicator"),
                      std::string::npos)
                << same->failure.why();
            EXPECT_FALSE(fabric->connects(1)) << "new communicators need another fabric";
            // Over TCP the whole worker is abandoned.
            EXPECT_EQ(fabric->connects(2), rdma);
            EXPECT_EQ(other->failure.broken(), !rdma) << other->failure.why();
        }
        if (rank != 1 && rdma) {
            exchange(*other, 9, 20);
            EXPECT_FALSE(other->failure.broken()) << other->failure.why();
        }
        meet(control, "rank 0 has stopped");
        // The control plane notifies the peer, whose endpoint may not notice. The peer can end as
        // well.
        if (rank == 1) {
            std::atomic<std::uint32_t> pending{1};
            const std::vector<std::byte> source(arena_bytes, std::byte{2});
            same->transport->put({0, source.data(), 1, 0, arena_bytes, {0, 0}, 1, &pending});
            for (Member *member : {stuck.get(), same.get()}) {
                member->failure.set(VESCOMM_ERROR_PEER_FAILED, "the control plane says so");
                member->transport->stop();
            }
            EXPECT_EQ(pending.load(), 0u);
            EXPECT_EQ(same->arena, std::vector<std::byte>(arena_bytes));
        }
        meet(control, "done");
    });
}

TEST_P(UcxFabrics, NewCommunicatorOnALostConnectionFailsAtOnce) {
    run_processes<UcxFabric>(2, [](Control &control, std::shared_ptr<UcxFabric> fabric) {
        if (control.rank() == 1) {
            fabric.reset();
            meet(control, "gone");
            return;
        }
        meet(control, "gone");
        const Deadline deadline = Deadline::after(patience_seconds);
        while (fabric->connects(1) && !deadline.expired())
            if (!fabric->progress()) std::this_thread::yield();
        EXPECT_FALSE(fabric->connects(1));
        EXPECT_TRUE(fabric->reaches(1));
        const Member late(fabric, 4, 0, peers_of(0));
        EXPECT_EQ(late.failure.status(), VESCOMM_ERROR_PEER_FAILED);
        Failure failure;
        EXPECT_THROW(make_ucx_transport(fabric, 5, 0, {-1, 2}, failure, {}), Error);
    });
}

}  // namespace
}  // namespace vescomm::internal
