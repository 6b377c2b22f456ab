// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Several communicators that share the TCP connections of their processes.
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "transport/put_ranks.h"

namespace vescomm {
namespace {

using namespace put_ranks;

std::shared_ptr<TcpFabric> connect(Control &control, const Failure &failure) {
    std::vector<bool> peers(static_cast<std::size_t>(control.ranks()), true);
    peers[static_cast<std::size_t>(control.rank())] = false;
    return TcpFabric::connect(control, peers, {}, failure, Deadline::after(patience_seconds));
}

// Runs `body` as each process, with its fabric.
template <typename Body>
void run_processes(int processes, Body body) {
    const auto hub = std::make_shared<LocalControlHub>(processes);
    std::vector<std::thread> threads;
    for (int process = 0; process < processes; ++process)
        threads.emplace_back([&, process] {
            LocalControl control(hub, process);
            Failure failure;
            try {
                std::shared_ptr<TcpFabric> fabric = connect(control, failure);
                body(control, std::move(fabric));
            } catch (const Error &error) {
                ADD_FAILURE() << "process " << process << ": " << error.what();
                control.fail(error.status, error.what());
            }
        });
    for (std::thread &thread : threads) thread.join();
}

// One communicator of two processes, on a fabric that it shares.
struct Member {
    Member(const std::shared_ptr<TcpFabric> &fabric, std::uint32_t context, int rank,
           std::vector<int> peers)
        : rank(rank),
          transport(
              make_tcp_transport(fabric, context, rank, peers, failure, [this] { ++wakes; })) {}

    void wait_for(int peer, SignalName signal, std::uint64_t value) {
        const Deadline deadline = Deadline::after(patience_seconds);
        while (transport->signalled(peer, signal) < value) {
            failure.check();
            if (deadline.expired()) throw Error(VESCOMM_ERROR_TIMEOUT, "the test took too long");
            if (!transport->progress()) std::this_thread::yield();
        }
    }

    const int rank;
    Failure failure;
    std::atomic<int> wakes{0};
    std::vector<std::byte> arena;
    std::unique_ptr<Transport> transport;
};

constexpr std::size_t arena_bytes = 2 << 20;

// Exchanges puts of all sizes with the other rank, and looks at every byte.
void exchange(Member &self, unsigned seed, int rounds) {
    const int peer = 1 - self.rank;
    std::mt19937_64 mine(seed * 2 + static_cast<unsigned>(self.rank));
    std::mt19937_64 theirs(seed * 2 + static_cast<unsigned>(peer));
    const auto size = [](std::mt19937_64 &random) {
        return random() % 4 == 0 ? random() % arena_bytes : random() % 5000;
    };
    for (int round = 1; round <= rounds; ++round) {
        const std::uint64_t number = static_cast<std::uint64_t>(round);
        const auto source = make_bytes(seed + number, size(mine));
        const std::size_t expected = size(theirs);
        std::atomic<std::uint32_t> pending{1};
        self.transport->put(
            {peer, source.data(), 1, 0, source.size(), {seed, 1}, number, &pending});
        self.wait_for(peer, {seed, 1}, number);
        ASSERT_EQ(first_difference(self.arena.data(), seed + number, expected), expected);
        // The arena may be written again, and the source go away.
        self.transport->signal(peer, {seed, 2}, number);
        self.wait_for(peer, {seed, 2}, number);
        while (pending.load() > 0)
            if (!self.transport->progress()) std::this_thread::yield();
    }
}

std::string offer(Member &self) {
    self.arena.assign(arena_bytes, std::byte{0});
    return self.transport->offer(1, self.arena.data(), arena_bytes);
}

TEST(TcpFabric, ManyCommunicatorsOfManyThreadsShareOneConnection) {
    constexpr std::uint32_t communicators = 12;
    run_processes(2, [](Control &control, const std::shared_ptr<TcpFabric> &fabric) {
        const int rank = control.rank();
        std::vector<std::unique_ptr<Member>> members;
        for (std::uint32_t i = 0; i < communicators; ++i) {
            // Ranks count backwards in every other one.
            const bool backwards = i % 2 == 1;
            const int own = backwards ? 1 - rank : rank;
            std::vector<int> peers(2, -1);
            peers[static_cast<std::size_t>(1 - own)] = 1 - rank;
            members.push_back(std::make_unique<Member>(fabric, 100 + i, own, peers));
        }
        for (auto &member : members) {
            const auto offers =
                control.all_gather("offer", offer(*member), Deadline::after(patience_seconds));
            member->transport->accept(1, 1 - member->rank,
                                      offers[static_cast<std::size_t>(1 - rank)]);
        }
        control.all_gather("accepted", "", Deadline::after(patience_seconds));
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
        // They go in any order, and nobody takes it for a failure.
        std::mt19937 random(static_cast<unsigned>(rank));
        std::shuffle(members.begin(), members.end(), random);
        while (!members.empty()) {
            members.pop_back();
            for (auto &member : members) member->transport->progress();
        }
    });
}

TEST(TcpFabric, OneCommunicatorThatBreaksLeavesTheOthersAlone) {
    run_processes(2, [](Control &control, const std::shared_ptr<TcpFabric> &fabric) {
        const int rank = control.rank();
        std::vector<int> peers(2, -1);
        peers[static_cast<std::size_t>(1 - rank)] = 1 - rank;
        Member good(fabric, 1, rank, peers);
        auto bad = std::make_unique<Member>(fabric, 2, rank, peers);
        for (Member *member : {&good, bad.get()}) {
            const auto offers =
                control.all_gather("offer", offer(*member), Deadline::after(patience_seconds));
            member->transport->accept(1, 1 - rank, offers[static_cast<std::size_t>(1 - rank)]);
        }
        control.all_gather("accepted", "", Deadline::after(patience_seconds));
        // Large puts of the bad one are under way when it stops on one side, and breaks on the
        // other.
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
        // What still came was not for this memory any more.
        EXPECT_EQ(bad->arena, std::vector<std::byte>(arena_bytes, std::byte{9}));
        bad.reset();
        control.all_gather("done", "", Deadline::after(patience_seconds));
    });
}

TEST(TcpFabric, AProcessThatHasLeftInOrderIsNoFailureForOneThatLeavesLater) {
    run_processes(2, [](Control &control, std::shared_ptr<TcpFabric> fabric) {
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
        // The first goodbye is answered with a reset, and the next ones cannot be sent.
        for (auto &member : members) {
            member->transport->stop();
            EXPECT_FALSE(member->failure.broken()) << member->failure.why();
        }
    });
}

TEST(TcpFabric, AContextIsNotOpenedTwiceAndMayBeUsedAgain) {
    run_processes(2, [](Control &control, const std::shared_ptr<TcpFabric> &fabric) {
        std::vector<int> peers(2, -1);
        peers[static_cast<std::size_t>(1 - control.rank())] = 1 - control.rank();
        for (int round = 0; round < 3; ++round) {
            Member first(fabric, 7, control.rank(), peers);
            EXPECT_THROW(Member(fabric, 7, control.rank(), peers), Error);
            control.all_gather("both", "", Deadline::after(patience_seconds));
            first.transport->signal(1 - control.rank(), {0, 0}, 1);
            first.wait_for(1 - control.rank(), {0, 0}, 1);
            control.all_gather("heard", "", Deadline::after(patience_seconds));
            first.transport->stop();
            control.all_gather("stopped", "", Deadline::after(patience_seconds));
        }
    });
}

TEST(TcpFabric, AChildThatDropsWhatItInheritedLeavesItsParentAlone) {
    run_processes(2, [](Control &control, const std::shared_ptr<TcpFabric> &fabric) {
        std::vector<int> peers(2, -1);
        const int peer = 1 - control.rank();
        peers[static_cast<std::size_t>(peer)] = peer;
        auto member = std::make_unique<Member>(fabric, 1, control.rank(), peers);
        control.all_gather("both", "", Deadline::after(patience_seconds));
        if (control.rank() == 0) {
            const pid_t child = fork();
            if (child == 0) {
                member->transport.reset();
                const_cast<std::shared_ptr<TcpFabric> &>(fabric).reset();
                _exit(0);
            }
            int status = -1;
            ASSERT_EQ(waitpid(child, &status, 0), child);
            EXPECT_EQ(status, 0);
        }
        control.all_gather("after the child", "", Deadline::after(patience_seconds));
        // Both sides hear each other, awake and asleep.
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

TEST(TcpFabric, SevenProcessesExchangeWithEachOther) {
    run_processes(7, [](Control &control, const std::shared_ptr<TcpFabric> &fabric) {
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
        constexpr std::size_t room = arena_bytes / 7;
        const auto source = make_bytes(static_cast<std::uint64_t>(rank), room);
        std::atomic<std::uint32_t> pending{0};
        for (int peer = 0; peer < 7; ++peer) {
            if (peer == rank) continue;
            ++pending;
            self.transport->put({peer,
                                 source.data(),
                                 1,
                                 room * static_cast<std::size_t>(rank),
                                 room,
                                 {0, 0},
                                 1,
                                 &pending});
        }
        for (int peer = 0; peer < 7; ++peer) {
            if (peer == rank) continue;
            self.wait_for(peer, {0, 0}, 1);
            EXPECT_EQ(first_difference(self.arena.data() + room * static_cast<std::size_t>(peer),
                                       static_cast<std::uint64_t>(peer), room),
                      room);
        }
        while (pending.load() > 0)
            if (!self.transport->progress()) std::this_thread::yield();
        control.all_gather("done", "", Deadline::after(patience_seconds));
    });
}

}  // namespace
}  // namespace vescomm
