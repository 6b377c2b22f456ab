// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Beginning and end of memories and inter-node transports, in order and out of order.
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "transport/put_ranks.h"
#include "transport/received_signals.h"

namespace vescomm::internal {
namespace {

using namespace put_ranks;

class PutsLife : public testing::TestWithParam<NetworkKind> {};

INSTANTIATE_TEST_SUITE_P(Over, PutsLife, testing::ValuesIn(all_networks()),
                         [](const auto &info) { return name_of(info.param); });

TEST_P(PutsLife, MemoryCanBeForgottenAndOfferedAgain) {
    run_ranks(GetParam(), 2, [](Rank &self) {
        const int peer = 1 - self.rank;
        for (std::uint64_t round = 1; round <= 5; ++round) {
            self.share(1, 100000 * round);
            const auto source = make_bytes(round, 100000 * round);
            std::atomic<std::uint32_t> pending{1};
            self.transport->put(
                {peer, source.data(), 1, 0, source.size(), {0, 0}, round, &pending});
            self.wait_for(peer, {0, 0}, round);
            EXPECT_EQ(first_difference(self.arena.data(), round, source.size()), source.size());
            self.wait([&] { return pending.load() == 0; });
            self.meet();
            self.transport->forget(1);
            self.transport->forget(1);
            self.meet();
        }
    });
}

TEST_P(PutsLife, EmptyMemoryAndEmptyOffersAreAccepted) {
    run_ranks(GetParam(), 2, [](Rank &self) {
        const int peer = 1 - self.rank;
        const auto offers = self.control.all_gather("offers", self.transport->offer(1, nullptr, 0),
                                                    Deadline::after(patience_seconds));
        self.transport->accept(1, peer, offers[peer]);
        self.transport->accept(2, peer, "");
        self.transport->put({peer, nullptr, 1, 0, 0, {0, 0}, 1, nullptr});
        self.wait_for(peer, {0, 0}, 1);
        self.meet();
    });
}

TEST_P(PutsLife, RejectsDamagedOffers) {
    run_ranks(GetParam(), 2, [](Rank &self) {
        const int peer = 1 - self.rank;
        self.arena.resize(4096);
        const auto offers =
            self.control.all_gather("offers", self.transport->offer(1, self.arena.data(), 4096),
                                    Deadline::after(patience_seconds));
        const std::string &good = offers[peer];
        for (std::size_t length = 1; length < good.size(); ++length)
            EXPECT_THROW(self.transport->accept(1, peer, good.substr(0, length)), Error);
        for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
            std::string flipped = good;
            flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
            EXPECT_THROW(self.transport->accept(1, peer, flipped), Error);
        }
        EXPECT_THROW(self.transport->accept(1, peer, offers[self.rank]), Error) << "wrong rank";
        EXPECT_THROW(self.transport->accept(2, peer, good), Error) << "wrong memory";
        EXPECT_THROW(self.transport->accept(1, peer, good + "x"), Error);
        self.transport->accept(1, peer, good);
        EXPECT_THROW(self.transport->accept(1, peer, good), Error) << "twice";
        self.meet();
    });
}

// The ranks stop one after another; the remaining ranks must not report a failure.
TEST_P(PutsLife, OrderlyStopOfAPeerIsNoFailure) {
    run_ranks(GetParam(), 3, [](Rank &self) {
        self.meet();
        for (int leaver = 0; leaver < 3; ++leaver) {
            if (self.rank == leaver) self.transport->stop();
            self.meet();
            for (int idle = 0; self.rank > leaver && idle < 20;) {
                if (self.transport->progress() || !self.transport->arm()) continue;
                pollfd descriptor{self.transport->descriptor(), POLLIN, 0};
                idle += poll(&descriptor, 1, 1) == 0;
            }
            EXPECT_FALSE(self.failure.broken()) << self.failure.why();
        }
    });
}

TEST_P(PutsLife, StopEndsPutsUnderWayAndMayBeRepeated) {
    const NetworkKind network = GetParam();
    const Environment environment(network);
    const auto hub = std::make_shared<LocalControlHub>(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            Rank self(network, hub, rank);
            self.share(1, 64 << 20);
            std::atomic<std::uint32_t> pending{0};
            const std::vector<std::byte> source(64 << 20);
            for (std::uint64_t i = 1; i <= 40; ++i) {
                pending.fetch_add(1);
                self.transport->put({1 - rank,
                                     source.data(),
                                     1,
                                     0,
                                     i % 3 ? source.size() : 100,
                                     {0, 0},
                                     i,
                                     &pending});
            }
            self.meet();
            self.transport->progress();
            self.transport->stop();
            self.transport->stop();
            EXPECT_EQ(pending.load(), 0u) << "the sources must be free after stop()";
            EXPECT_EQ(self.transport->descriptor(), -1);
            EXPECT_FALSE(self.transport->progress());
            pending.fetch_add(1);
            self.transport->put({1 - rank, source.data(), 1, 0, 10, {0, 0}, 99, &pending});
            EXPECT_EQ(pending.load(), 0u);
            self.transport->forget(1);
        });
    }
    for (std::thread &thread : threads) thread.join();
}

TEST_P(PutsLife, InvalidPutsFailTheCommunicatorWithTheReason) {
    struct Case {
        Put put;
        const char *why;
    };
    const std::byte byte{};
    const Case cases[] = {
        {{1, &byte, 9, 0, 1, {0, 0}, 1, nullptr}, "has not offered"},
        {{1, &byte, 1, 4096, 1, {0, 0}, 1, nullptr}, "does not fit"},
        {{1, &byte, 1, ~0ull, 2, {0, 0}, 1, nullptr}, "does not fit"},
        {{1, &byte, 1, 0, 1, {0, flags_per_channel}, 1, nullptr}, "no such signal"},
        {{1, &byte, 1, 0, 1, {max_channels, 0}, 1, nullptr}, "no such signal"},
        {{0, &byte, 1, 0, 1, {0, 0}, 1, nullptr}, "not reached over"},
    };
    const NetworkKind network = GetParam();
    const Environment environment(network);
    for (const Case &given : cases) {
        const auto hub = std::make_shared<LocalControlHub>(2);
        std::thread other([&] {
            Rank self(network, hub, 1);
            self.share(1, 4096);
            self.meet();
        });
        {
            Rank self(network, hub, 0);
            self.share(1, 4096);
            std::atomic<std::uint32_t> pending{1};
            Put put = given.put;
            put.pending = &pending;
            self.transport->put(put);
            EXPECT_EQ(pending.load(), 0u);
            EXPECT_TRUE(self.failure.broken());
            EXPECT_NE(self.failure.why().find(given.why), std::string::npos) << self.failure.why();
            self.meet();
        }
        other.join();
    }
}

}  // namespace
}  // namespace vescomm::internal
