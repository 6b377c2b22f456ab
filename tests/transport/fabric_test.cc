// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Several communicators that share the connections of their processes, over TCP and over UCX.
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "transport/fabric_members.h"

namespace vescomm::internal {
namespace {

using namespace fabric_members;

template <typename Fabric>
class Fabrics : public testing::Test {};

#if VESCOMM_HAVE_UCX
using AllFabrics = testing::Types<TcpFabric, UcxFabric>;
#else
using AllFabrics = testing::Types<TcpFabric>;
#endif

struct FabricName {
    template <typename Fabric>
    static std::string GetName(int) {
        return Fabric::network;
    }
};

TYPED_TEST_SUITE(Fabrics, AllFabrics, FabricName);

TYPED_TEST(Fabrics, ManyCommunicatorsInManyThreadsShareOneConnection) {
    constexpr std::uint32_t communicators = 12;
    run_processes<TypeParam>(2, [](Control &control, const std::shared_ptr<TypeParam> &fabric) {
        const int rank = control.rank();
        std::vector<std::unique_ptr<Member>> members;
        for (std::uint32_t i = 0; i < communicators; ++i) {
            // Every other communicator has its ranks in reverse order.
            const bool backwards = i % 2 == 1;
            const int own = backwards ? 1 - rank : rank;
            std::vector<int> peers(2, -1);
            peers[static_cast<std::size_t>(1 - own)] = 1 - rank;
            members.push_back(std::make_unique<Member>(fabric, 100 + i, own, peers));
        }
        for (auto &member : members) share(*member, control);
        std::vector<std::thread> threads;
        for (std::uint32_t i = 0; i < communicators; ++i)
            threads.emplace_back([&, i] {
                try {
                    exchange(*members[i], 1 + i, 15);
                } catch (const Error &error) {
                    ADD_FAILURE() << "communicator " << i << ": " << error.what();
                }
            });
        for (std::thread &thread : threads) thread.join();
        for (auto &member : members) {
            EXPECT_FALSE(member->failure.broken()) << member->failure.why();
            EXPECT_GT(member->wakes, 0);
        }
        control.all_gather("done", "", Deadline::after(patience_seconds));
        // Communicators end in random order, which is no failure on either side.
        std::mt19937 random(static_cast<unsigned>(rank));
        std::shuffle(members.begin(), members.end(), random);
        while (!members.empty()) {
            members.pop_back();
            for (auto &member : members) member->transport->progress();
        }
    });
}

TYPED_TEST(Fabrics, FailureOfOneCommunicatorDoesNotAffectOthers) {
    run_processes<TypeParam>(2, [](Control &control, const std::shared_ptr<TypeParam> &fabric) {
        const int rank = control.rank();
        std::vector<int> peers(2, -1);
        peers[static_cast<std::size_t>(1 - rank)] = 1 - rank;
        Member good(fabric, 1, rank, peers);
        auto bad = std::make_unique<Member>(fabric, 2, rank, peers);
        for (Member *member : {&good, bad.get()}) share(*member, control);
        // Large puts of `bad` are under way when it stops on one side and fails on the other.
        const std::vector<std::byte> source(arena_bytes, std::byte{1});
        std::atomic<std::uint32_t> pending{0};
        for (std::uint64_t i = 1; i <= 20; ++i) {
            ++pending;
            bad->transport->put({1 - rank, source.data(), 1, 0, arena_bytes, {0, 0}, i, &pending});
        }
        if (rank == 0) bad->failure.set(VESCOMM_ERROR_ABORTED, "by the test");
        bad->transport->stop();
        EXPECT_EQ(pending.load(), 0u);
        std::fill(bad->arena.begin(), bad->arena.end(), std::byte{9});
        exchange(good, 5, 20);
        EXPECT_FALSE(good.failure.broken()) << good.failure.why();
        // Messages that arrived later did not write this memory.
        EXPECT_EQ(bad->arena, std::vector<std::byte>(arena_bytes, std::byte{9}));
        bad.reset();
        control.all_gather("done", "", Deadline::after(patience_seconds));
    });
}

TYPED_TEST(Fabrics, OrderlyEndOfAPeerIsNoFailureWhenLeavingLater) {
    run_processes<TypeParam>(2, [](Control &control, std::shared_ptr<TypeParam> fabric) {
        const int rank = control.rank();
        std::vector<int> peers(2, -1);
        peers[static_cast<std::size_t>(1 - rank)] = 1 - rank;
        std::vector<std::unique_ptr<Member>> members;
        for (std::uint32_t i = 0; i < 8; ++i)
            members.push_back(std::make_unique<Member>(fabric, i, rank, peers));
        control.all_gather("made", "", Deadline::after(patience_seconds));
        if (rank == 0) {
            members.clear();
            fabric.reset();
        }
        control.all_gather("rank 0 has left", "", Deadline::after(patience_seconds));
        // The first goodbye is answered with a reset, so the next ones cannot be sent.
        for (auto &member : members) {
            member->transport->stop();
            EXPECT_FALSE(member->failure.broken()) << member->failure.why();
        }
    });
}

TYPED_TEST(Fabrics, ContextIdIsExclusiveAndReusable) {
    run_processes<TypeParam>(2, [](Control &control, const std::shared_ptr<TypeParam> &fabric) {
        std::vector<int> peers(2, -1);
        peers[static_cast<std::size_t>(1 - control.rank())] = 1 - control.rank();
        for (int round = 0; round < 3; ++round) {
            Member first(fabric, 7, control.rank(), peers);
            EXPECT_THROW(Member(fabric, 7, control.rank(), peers), Error);
            control.all_gather("both", "", Deadline::after(patience_seconds));
            first.transport->signal(1 - control.rank(), {0, 0}, 1);
            first.wait_for(1 - control.rank(), {0, 0}, 1);
            control.all_gather("observed", "", Deadline::after(patience_seconds));
            first.transport->stop();
            control.all_gather("stopped", "", Deadline::after(patience_seconds));
        }
    });
}

TYPED_TEST(Fabrics, ForkedChildThatDestroysTheFabricDoesNotAffectItsParent) {
    run_processes<TypeParam>(2, [](Control &control, const std::shared_ptr<TypeParam> &fabric) {
        std::vector<int> peers(2, -1);
        const int peer = 1 - control.rank();
        peers[static_cast<std::size_t>(peer)] = peer;
        auto member = std::make_unique<Member>(fabric, 1, control.rank(), peers);
        control.all_gather("both", "", Deadline::after(patience_seconds));
        if (control.rank() == 0) {
            const pid_t child = fork();
            if (child == 0) {
                member->transport.reset();
                const_cast<std::shared_ptr<TypeParam> &>(fabric).reset();
                _exit(0);
            }
            int status = -1;
            ASSERT_EQ(waitpid(child, &status, 0), child);
            EXPECT_EQ(status, 0);
        }
        control.all_gather("after the child", "", Deadline::after(patience_seconds));
        // Signals arrive in both directions, awake and asleep.
        for (std::uint64_t round = 1; round <= 20; ++round) {
            member->transport->signal(peer, {0, 0}, round);
            const Deadline deadline = Deadline::after(patience_seconds);
            while (member->transport->signalled(peer, {0, 0}) < round && !deadline.expired()) {
                if (member->transport->progress() || !member->transport->arm()) continue;
                pollfd descriptor{member->transport->descriptor(), POLLIN, 0};
                EXPECT_EQ(poll(&descriptor, 1, 10'000), 1);
            }
        }
        EXPECT_FALSE(member->failure.broken()) << member->failure.why();
        control.all_gather("done", "", Deadline::after(patience_seconds));
    });
}

TYPED_TEST(Fabrics, SevenProcessesExchangePuts) {
    run_processes<TypeParam>(7, [](Control &control, const std::shared_ptr<TypeParam> &fabric) {
        const int rank = control.rank();
        std::vector<int> peers;
        for (int peer = 0; peer < 7; ++peer) peers.push_back(peer == rank ? -1 : peer);
        Member self(fabric, 1, rank, peers);
        const auto offers =
            control.all_gather("offer", offer(self), Deadline::after(patience_seconds));
        for (int peer = 0; peer < 7; ++peer)
            if (peer != rank)
                self.transport->accept(1, peer, offers[static_cast<std::size_t>(peer)]);
        control.all_gather("accepted", "", Deadline::after(patience_seconds));
        constexpr std::size_t capacity = arena_bytes / 7;
        const auto source = make_bytes(static_cast<std::uint64_t>(rank), capacity);
        std::atomic<std::uint32_t> pending{0};
        for (int peer = 0; peer < 7; ++peer) {
            if (peer == rank) continue;
            ++pending;
            self.transport->put({peer,
                                 source.data(),
                                 1,
                                 capacity * static_cast<std::size_t>(rank),
                                 capacity,
                                 {0, 0},
                                 1,
                                 &pending});
        }
        for (int peer = 0; peer < 7; ++peer) {
            if (peer == rank) continue;
            self.wait_for(peer, {0, 0}, 1);
            EXPECT_EQ(
                first_difference(self.arena.data() + capacity * static_cast<std::size_t>(peer),
                                 static_cast<std::uint64_t>(peer), capacity),
                capacity);
        }
        while (pending.load() > 0)
            if (!self.transport->progress()) std::this_thread::yield();
        control.all_gather("done", "", Deadline::after(patience_seconds));
    });
}

}  // namespace
}  // namespace vescomm::internal
