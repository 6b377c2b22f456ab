// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// UCX with threads of this process as ranks, then with a peer that lies and a peer that is killed.
#include "transport/ucx.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.h"
#include "support/local_control.h"
#include "transport/ucx_signals.h"

namespace vescomm {
namespace {

using testing_support::LocalControl;
using testing_support::LocalControlHub;

constexpr double patience_seconds = 20;

// One rank: a thread with its own transport and an arena that its peers may write.
struct Rank {
    Rank(std::shared_ptr<LocalControlHub> hub, int rank)
        : rank(rank), ranks(hub->ranks), control(hub, rank) {
        std::vector<bool> peers(ranks, true);
        peers[rank] = false;
        transport = make_ucx_transport(
            rank, ranks, peers, control, failure, [this] { ++wakes; },
            Deadline::after(patience_seconds));
    }

    void meet() { control.all_gather("meet", "", Deadline::after(patience_seconds)); }

    // Makes an arena the target of everyone's puts.
    void share(MemoryId memory, std::size_t bytes) {
        arena.assign(bytes, std::byte{0});
        const auto offers =
            control.all_gather("offers", transport->offer(memory, arena.data(), bytes),
                               Deadline::after(patience_seconds));
        for (int peer = 0; peer < ranks; ++peer)
            if (peer != rank) transport->accept(memory, peer, offers[peer]);
        meet();
    }

    template <typename Condition>
    void wait(Condition condition) {
        const Deadline deadline = Deadline::after(patience_seconds);
        while (!condition()) {
            failure.check();
            if (deadline.expired()) throw Error(VESCOMM_ERROR_TIMEOUT, "the test took too long");
            if (transport->progress() || !transport->arm()) continue;
            pollfd descriptor{transport->descriptor(), POLLIN, 0};
            poll(&descriptor, 1, 1000);
        }
    }

    void wait_for(int peer, SignalName signal, std::uint64_t value) {
        wait([&] { return transport->signalled(peer, signal) >= value; });
    }

    const int rank, ranks;
    LocalControl control;
    Failure failure;
    int wakes = 0;
    std::unique_ptr<Transport> transport;
    std::vector<std::byte> arena;
};

// Runs the body as every rank, and ends as a communicator does: farewell, then stop.
template <typename Body>
void run_ranks(int ranks, Body body) {
    const auto hub = std::make_shared<LocalControlHub>(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            LocalControl outside(hub, rank);
            try {
                Rank self(hub, rank);
                body(self);
                self.control.leave(Deadline::after(patience_seconds));
                self.transport->stop();
                EXPECT_FALSE(self.failure.broken()) << self.failure.why();
            } catch (const Error &error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
                outside.fail(error.status, error.what());
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
}

std::byte pattern(std::uint64_t seed, std::uint64_t index) {
    return static_cast<std::byte>((seed * 0x9e3779b97f4a7c15u + index * 0xff51afd7ed558ccdu) >> 56);
}

std::vector<std::byte> make_bytes(std::uint64_t seed, std::size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) made[i] = pattern(seed, i);
    return made;
}

// Index of the first byte that differs, or `bytes`.
std::size_t first_difference(const std::byte *at, std::uint64_t seed, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
        if (at[i] != pattern(seed, i)) return i;
    return bytes;
}

const std::vector<std::size_t> sizes = {0,    1,    7,     4096,  8191,
                                        8192, 8193, 16384, 65536, (1 << 20) + 3};

class UcxRanks : public testing::TestWithParam<int> {};

TEST_P(UcxRanks, PutsOfAllSizesAreCompleteWhenTheSignalIsSeen) {
    run_ranks(GetParam(), [](Rank &self) {
        std::mt19937_64 random(self.rank + 1);
        const std::size_t room = (1 << 20) + 4096;
        self.share(5, room * self.ranks);
        std::uint64_t round = 0;
        for (const std::size_t bytes : sizes) {
            ++round;
            // Everyone knows the sender's seed and offset: they are functions of rank and round.
            const auto offset = [&](int from) {
                return room * from + (from * 31 + round * 7) % 3000;
            };
            const auto seed = [&](int from, int to) { return round * 100 + from * 10 + to; };
            std::atomic<std::uint32_t> pending{0};
            std::vector<std::vector<std::byte>> sources(self.ranks);
            for (int peer = 0; peer < self.ranks; ++peer) {
                if (peer == self.rank) continue;
                sources[peer] = make_bytes(seed(self.rank, peer), bytes);
                pending.fetch_add(1);
                Put put;
                put.peer = peer;
                put.from = sources[peer].data();
                put.memory = 5;
                put.offset = offset(self.rank);
                put.bytes = bytes;
                put.signal = {2, 3};
                put.value = round;
                put.pending = &pending;
                self.transport->put(put);
            }
            for (int peer = 0; peer < self.ranks; ++peer) {
                if (peer == self.rank) continue;
                self.wait_for(peer, {2, 3}, round);
                EXPECT_EQ(first_difference(self.arena.data() + offset(peer), seed(peer, self.rank),
                                           bytes),
                          bytes)
                    << bytes << " bytes from rank " << peer << " to rank " << self.rank;
            }
            self.wait([&] { return pending.load() == 0; });
            self.meet();
        }
        EXPECT_GT(self.wakes, 0);
        self.transport->forget(5);
    });
}

INSTANTIATE_TEST_SUITE_P(TwoToFive, UcxRanks, testing::Values(2, 3, 4, 5));

TEST(Ucx, Puts64MebibytesAtOnce) {
    run_ranks(2, [](Rank &self) {
        const std::size_t bytes = 64u << 20;
        self.share(1, bytes);
        if (self.rank == 0) {
            const auto source = make_bytes(9, bytes);
            std::atomic<std::uint32_t> pending{1};
            Put put{1, source.data(), 1, 0, bytes, {0, 0}, 1, &pending};
            self.transport->put(put);
            self.wait([&] { return pending.load() == 0; });
            self.meet();
        } else {
            self.wait_for(0, {0, 0}, 1);
            EXPECT_EQ(first_difference(self.arena.data(), 9, bytes), bytes);
            self.meet();
        }
    });
}

TEST(Ucx, SignalsNeverOvertakePutsWhateverTheirSizes) {
    run_ranks(3, [](Rank &self) {
        // Rank 0 sends pieces of random sizes to both others; each piece raises one counter, and
        // counters of different channels are raised in between without any bytes.
        struct Piece {
            std::size_t offset, bytes;
        };
        std::mt19937 random(7);
        std::vector<Piece> pieces;
        std::size_t end = 0;
        for (int i = 0; i < 300; ++i) {
            const std::size_t bytes = sizes[random() % (sizes.size() - 1)] + random() % 5;
            pieces.push_back({end, bytes});
            end += bytes;
        }
        self.share(1, end);
        if (self.rank == 0) {
            const auto source = make_bytes(3, end);
            std::atomic<std::uint32_t> pending{0};
            for (std::size_t i = 0; i < pieces.size(); ++i) {
                for (int peer = 1; peer < 3; ++peer) {
                    pending.fetch_add(1);
                    self.transport->put({peer,
                                         source.data() + pieces[i].offset,
                                         1,
                                         pieces[i].offset,
                                         pieces[i].bytes,
                                         {1, 0},
                                         i + 1,
                                         &pending});
                    self.transport->signal(peer, {2, 1}, i + 1);
                }
                if (i % 16 == 0) self.transport->progress();
            }
            self.wait([&] { return pending.load() == 0; });
            self.wait_for(1, {3, 0}, 1);
            self.wait_for(2, {3, 0}, 1);
        } else {
            std::uint64_t checked = 0;
            while (checked < pieces.size()) {
                // The later counter first: what was raised before it must then be visible.
                std::uint64_t later = 0;
                self.wait([&] {
                    later = self.transport->signalled(0, {2, 1});
                    return later > checked;
                });
                EXPECT_GE(self.transport->signalled(0, {1, 0}), later);
                for (; checked < later; ++checked) {
                    const Piece &piece = pieces[checked];
                    std::size_t wrong = 0;
                    for (std::size_t i = 0; i < piece.bytes; ++i)
                        wrong += self.arena[piece.offset + i] != pattern(3, piece.offset + i);
                    ASSERT_EQ(wrong, 0u) << "piece " << checked << " of " << piece.bytes;
                }
            }
            self.transport->signal(0, {3, 0}, 1);
        }
    });
}

TEST(Ucx, LaterPutToTheSamePlaceWins) {
    run_ranks(2, [](Rank &self) {
        self.share(1, 1 << 20);
        const std::size_t lengths[] = {1 << 20, 100, 300000, 8192, 20000, 1};
        if (self.rank == 0) {
            std::vector<std::vector<std::byte>> sources;
            std::uint64_t value = 0;
            for (const std::size_t bytes : lengths) {
                sources.emplace_back(bytes, static_cast<std::byte>(value + 1));
                self.transport->put(
                    {1, sources.back().data(), 1, 0, bytes, {0, 0}, ++value, nullptr});
            }
            self.wait_for(1, {0, 1}, 1);
        } else {
            self.wait_for(0, {0, 0}, std::size(lengths));
            EXPECT_EQ(self.arena[0], std::byte{6});
            EXPECT_EQ(self.arena[1], std::byte{5});
            EXPECT_EQ(self.arena[19999], std::byte{5});
            EXPECT_EQ(self.arena[20000], std::byte{3});
            EXPECT_EQ(self.arena[300000], std::byte{1});
            self.transport->signal(0, {0, 1}, 1);
        }
    });
}

TEST(Ucx, CountsAHundredThousandChannels) {
    run_ranks(2, [](Rank &self) {
        constexpr std::uint32_t channels = 100000;
        const int peer = 1 - self.rank;
        for (std::uint32_t channel = 0; channel < channels; ++channel) {
            self.transport->signal(peer, {channel, channel % flags_per_channel}, channel + 1);
            if (channel % 256 == 0) self.transport->progress();
        }
        const std::uint32_t last = channels - 1;
        self.wait_for(peer, {last, last % flags_per_channel}, channels);
        for (std::uint32_t channel = 0; channel < channels; ++channel)
            ASSERT_EQ(self.transport->signalled(peer, {channel, channel % flags_per_channel}),
                      channel + 1);
        EXPECT_EQ(self.transport->signalled(peer, {channels + 1, 0}), 0u);
        EXPECT_EQ(self.transport->signalled(peer, {1u << 31, 0}), 0u);
        self.meet();
    });
}

TEST(Ucx, OtherThreadsReadSignalsWhileTheyArrive) {
    run_ranks(2, [](Rank &self) {
        constexpr std::uint32_t channels = 5000;
        const int peer = 1 - self.rank;
        std::atomic<bool> seen{false};
        std::thread reader([&] {
            std::uint32_t channel = 0;
            while (channel < channels)
                if (self.transport->signalled(peer, {channel, 0}) == channel + 1) ++channel;
                else std::this_thread::yield();
            seen = true;
        });
        for (std::uint32_t channel = 0; channel < channels; ++channel)
            self.transport->signal(peer, {channel, 0}, channel + 1);
        try {
            self.wait_for(peer, {channels - 1, 0}, channels);
        } catch (...) {
            reader.detach();
            throw;
        }
        reader.join();
        EXPECT_TRUE(seen);
        self.meet();
    });
}

// Each rank sleeps until the descriptor says that something came; a lost wake-up shows as a poll
// that runs into its limit.
TEST(Ucx, WakesASleeperForEveryArrival) {
    run_ranks(2, [](Rank &self) {
        const int peer = 1 - self.rank;
        const std::size_t large = 3 << 20;
        self.share(1, large);
        const auto source = make_bytes(1, large);
        const auto sleep_until = [&](auto condition) {
            while (!condition()) {
                if (self.transport->progress() || !self.transport->arm()) continue;
                pollfd descriptor{self.transport->descriptor(), POLLIN, 0};
                ASSERT_EQ(poll(&descriptor, 1, static_cast<int>(patience_seconds * 1000)), 1);
            }
        };
        for (std::uint64_t round = 1; round <= 200; ++round) {
            const std::size_t bytes = round % 10 == 0 ? large : 8;
            std::atomic<std::uint32_t> pending{1};
            const Put put{peer, source.data(), 1, 0, bytes, {0, 0}, round, &pending};
            if (self.rank == 0) self.transport->put(put);
            sleep_until([&] { return self.transport->signalled(peer, {0, 0}) >= round; });
            if (self.rank == 1) self.transport->put(put);
            sleep_until([&] { return pending.load() == 0; });
        }
        self.meet();
    });
}

TEST(Ucx, MemoryMayBeForgottenAndOfferedAgain) {
    run_ranks(2, [](Rank &self) {
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

TEST(Ucx, EmptyMemoryAndEmptyOffersAreAccepted) {
    run_ranks(2, [](Rank &self) {
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

TEST(Ucx, RefusesDamagedOffers) {
    run_ranks(2, [](Rank &self) {
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

// Leaving in turn: nobody that is still there may take it for a failure.
TEST(Ucx, APeerThatStopsInOrderIsNoFailure) {
    run_ranks(3, [](Rank &self) {
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

TEST(Ucx, StopGivesUpWhatIsUnderWayAndMayBeRepeated) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            Rank self(hub, rank);
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

TEST(Ucx, ImpossiblePutsBreakTheCommunicatorAndSaySo) {
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
        {{1, &byte, 1, 0, 1, {most_channels, 0}, 1, nullptr}, "no such signal"},
        {{0, &byte, 1, 0, 1, {0, 0}, 1, nullptr}, "not reached over UCX"},
    };
    for (const Case &given : cases) {
        const auto hub = std::make_shared<LocalControlHub>(2);
        std::thread other([&] {
            Rank self(hub, 1);
            self.share(1, 4096);
            self.meet();
        });
        {
            Rank self(hub, 0);
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
}  // namespace vescomm
