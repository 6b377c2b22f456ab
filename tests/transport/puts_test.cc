// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Puts and signals between nodes over every transport that supports them: nothing is lost, torn or
// reordered, and no wake-up is lost.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "transport/put_batch.h"
#include "transport/put_ranks.h"
#include "transport/received_signals.h"

namespace vescomm::internal {
namespace {

using namespace put_ranks;

const std::vector<std::size_t> sizes = {0,    1,    7,     4096,  8191,
                                        8192, 8193, 16384, 65536, (1 << 20) + 3};

void put_all_sizes(NetworkKind network, int ranks) {
    run_ranks(network, ranks, [](Rank &self) {
        std::mt19937_64 random(self.rank + 1);
        const std::size_t capacity = (1 << 20) + 4096;
        self.share(5, capacity * self.ranks);
        std::uint64_t round = 0;
        for (const std::size_t bytes : sizes) {
            ++round;
            // Seed and offset are functions of sender and round, so every rank can compute them.
            const auto offset = [&](int from) {
                return capacity * from + (from * 31 + round * 7) % 3000;
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

class Puts : public testing::TestWithParam<NetworkKind> {};

INSTANTIATE_TEST_SUITE_P(Over, Puts, testing::ValuesIn(all_networks()),
                         [](const auto &info) { return name_of(info.param); });

TEST_P(Puts, OfAllSizesAreCompleteWhenTheSignalIsVisible) {
    for (int ranks = 2; ranks <= 7; ++ranks) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks");
        put_all_sizes(GetParam(), ranks);
    }
}

// Rank 0 puts before rank 1 grants the credit; later signals of rank 0 pass the put.
void put_eager(NetworkKind network, std::size_t bytes) {
    run_ranks(network, 2, [bytes](Rank &self) {
        constexpr SignalName arrived{3, 1}, later{3, 2}, elsewhere{4, 0};
        constexpr std::uint32_t ready = 0;
        const std::uint64_t run = std::uint64_t{7} << 32;
        self.share(1, bytes);
        if (self.rank == 0) {
            const auto source = make_bytes(5, bytes);
            std::atomic<std::uint32_t> pending{2};
            for (const std::uint64_t value : {run + 1, run + 2}) {
                Put put{1, source.data(), 1, 0, bytes, arrived, value, &pending};
                put.credit = value;
                put.credit_flag = ready;
                self.transport->put(put);
            }
            self.transport->signal(1, later, run + 1);
            self.transport->signal(1, elsewhere, 1);
            self.wait([&] { return pending.load() == 0; });
            self.meet();
            return;
        }
        self.wait_for(0, later, run + 1);
        self.wait_for(0, elsewhere, 1);
        EXPECT_EQ(self.transport->signalled(0, arrived), 0u);
        EXPECT_EQ(self.arena, std::vector<std::byte>(bytes));
        // Credit of an earlier run or of another channel is not sufficient.
        self.transport->grant_credit(0, {3, ready}, run - 1);
        self.transport->grant_credit(0, {4, ready}, run + 9);
        EXPECT_EQ(self.transport->signalled(0, arrived), 0u);
        self.transport->grant_credit(0, {3, ready}, run + 1);
        self.wait_for(0, arrived, run + 1);
        EXPECT_EQ(self.transport->signalled(0, arrived), run + 1);
        EXPECT_EQ(first_difference(self.arena.data(), 5, bytes), bytes);
        self.transport->grant_credit(0, {3, ready}, run + 2);
        self.wait_for(0, arrived, run + 2);
        self.meet();
    });
}

TEST_P(Puts, EagerPutWaitsForCredit) {
    put_eager(GetParam(), 100);
    put_eager(GetParam(), 300'000);
    put_eager(GetParam(), 3'000'000);
}

// More puts than UCX holds for one peer wait for credit. A later message passes them.
TEST_P(Puts, ManyEagerPutsWithoutCreditBlockNothing) {
    run_ranks(GetParam(), 2, [](Rank &self) {
        constexpr std::uint64_t puts = 20;
        constexpr std::size_t bytes = 300'000;
        constexpr SignalName arrived{3, 1}, later{3, 2};
        self.share(1, bytes);
        if (self.rank == 0) {
            const auto source = make_bytes(5, bytes);
            std::atomic<std::uint32_t> pending{puts};
            for (std::uint64_t value = 1; value <= puts; ++value) {
                Put put{1, source.data(), 1, 0, bytes, arrived, value, &pending};
                put.credit = value;
                self.transport->put(put);
            }
            self.transport->signal(1, later, 1);
            self.wait([&] { return pending.load() == 0; });
            self.meet();
            return;
        }
        self.wait_for(0, later, 1);
        EXPECT_EQ(self.transport->signalled(0, arrived), 0u);
        self.transport->grant_credit(0, {3, 0}, puts);
        self.wait_for(0, arrived, puts);
        EXPECT_EQ(first_difference(self.arena.data(), 5, bytes), bytes);
        self.meet();
    });
}

TEST_P(Puts, EagerPutWithoutCreditIsDropped) {
    run_ranks(GetParam(), 2, [](Rank &self) {
        const std::vector<std::byte> source(100);
        self.share(1, 100);
        Put put{1 - self.rank, source.data(), 1, 0, 100, {3, 1}, 1, nullptr};
        put.credit = 1;
        self.transport->put(put);
        self.transport->signal(1 - self.rank, {4, 0}, 1);
        self.wait_for(1 - self.rank, {4, 0}, 1);
        EXPECT_EQ(self.transport->signalled(1 - self.rank, {3, 1}), 0u);
        self.meet();
    });
}

TEST_P(Puts, Of64MebibytesAreComplete) {
    run_ranks(GetParam(), 2, [](Rank &self) {
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

// Rank 0 makes no progress once its put has ended, as a program that does something else.
TEST_P(Puts, ThatHaveEndedArriveWithoutProgressOfTheSender) {
    run_ranks(GetParam(), 2, [](Rank &self) {
        const std::size_t bytes = (16u << 20) + 12'345;
        self.share(1, bytes);
        const auto source = make_bytes(4, bytes);
        for (std::uint64_t round = 1; round <= 20; ++round) {
            if (self.rank == 0) {
                std::atomic<std::uint32_t> pending{1};
                self.transport->put({1, source.data(), 1, 0, bytes, {0, 0}, round, &pending});
                self.wait([&] { return pending.load() == 0; });
            } else {
                self.wait_for(0, {0, 0}, round);
            }
            self.meet_idle();
        }
        EXPECT_EQ(self.arena, self.rank == 0 ? std::vector<std::byte>(bytes) : source);
    });
}

// The receiver reads nothing until the network takes no more; small puts are the ones that a
// transport may copy.
TEST_P(Puts, ThatHaveEndedBeforeTheNetworkIsFullArriveWithoutProgressOfTheSender) {
    run_ranks(GetParam(), 2, [](Rank &self) {
        constexpr std::size_t bytes = 3000;
        constexpr std::uint64_t most = 20'000;
        constexpr int idle_looks = 1000;
        self.share(1, bytes);
        const auto source = make_bytes(5, bytes);
        std::atomic<std::uint32_t> pending{0};
        std::uint64_t ended = 0;
        if (self.rank == 0) {
            for (std::uint64_t put = 1; put <= most; ++put) {
                pending.store(1);
                self.transport->put({1, source.data(), 1, 0, bytes, {0, 0}, put, &pending});
                for (int look = 0; look < idle_looks && pending.load() > 0; ++look)
                    self.transport->progress();
                if (pending.load() > 0) break;
                ended = put;
            }
        }
        const auto counts = self.control.all_gather("ended", std::to_string(ended),
                                                    Deadline::after(patience_seconds));
        if (self.rank == 1) self.wait_for(0, {0, 0}, std::stoull(counts[0]));
        self.meet_idle();
        if (self.rank == 0) self.wait([&] { return pending.load() == 0; });
        self.meet();
    });
}

TEST_P(Puts, OfAnySizeAreNotOvertakenBySignals) {
    run_ranks(GetParam(), 3, [](Rank &self) {
        // Rank 0 sends pieces of random sizes to both other ranks. Each piece raises one counter.
        // In between, signals without bytes raise a counter of another channel.
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
                // Reads the later counter first: everything raised before it must then be visible.
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

// Puts in parts: every part is in place when the signal of the last one is visible, whether the
// parts were sent together or not.
void put_in_parts(NetworkKind network, bool eager) {
    run_ranks(network, 2, [eager](Rank &self) {
        constexpr std::uint64_t rounds = 200;
        constexpr std::size_t capacity = 1 << 18;
        constexpr std::uint32_t ready = 2;
        self.share(1, capacity);
        std::mt19937_64 random(11);
        for (std::uint64_t round = 1; round <= rounds; ++round) {
            struct Part {
                std::size_t begin, bytes;
            };
            std::vector<Part> parts;
            std::size_t end = 0;
            const std::size_t max = round % 3 == 0 ? 20000 : round % 3 == 1 ? 200 : 8192;
            const std::size_t count = 1 + random() % 30;
            while (parts.size() < count) {
                const std::size_t begin = end + random() % 64, bytes = random() % (max + 1);
                if (begin + bytes > capacity) break;
                parts.push_back({begin, bytes});
                end = begin + bytes;
            }
            const auto seed = [&](std::size_t part) { return 1000 * round + part; };
            if (self.rank == 0) {
                std::vector<std::vector<std::byte>> sources;
                std::atomic<std::uint32_t> pending{0};
                for (std::size_t i = 0; i < parts.size(); ++i) {
                    sources.push_back(make_bytes(seed(i), parts[i].bytes));
                    ++pending;
                    const bool last = i + 1 == parts.size();
                    Put put{1,      sources[i].data(), 1,       parts[i].begin, parts[i].bytes,
                            {3, 1}, last ? round : 0,  &pending};
                    put.credit = eager ? round : 0;
                    put.credit_flag = ready;
                    self.transport->put(put);
                }
                self.wait([&] { return pending.load() == 0; });
                self.wait_for(1, {3, 0}, round);
            } else {
                if (eager) self.transport->grant_credit(0, {3, ready}, round);
                self.wait_for(0, {3, 1}, round);
                for (std::size_t i = 0; i < parts.size(); ++i)
                    ASSERT_EQ(first_difference(self.arena.data() + parts[i].begin, seed(i),
                                               parts[i].bytes),
                              parts[i].bytes)
                        << "part " << i << " of round " << round;
                self.transport->signal(0, {3, 0}, round);
            }
        }
    });
}

TEST_P(Puts, InPartsAreCompleteWhenTheLastSignalIsVisible) {
    put_in_parts(GetParam(), false);
}

TEST_P(Puts, InPartsMayBeEager) {
    put_in_parts(GetParam(), true);
}

TEST_P(Puts, ToTheSameRangeLeaveTheBytesOfTheLastOne) {
    run_ranks(GetParam(), 2, [](Rank &self) {
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

TEST_P(Puts, RaiseSignalsOfAHundredThousandChannels) {
    run_ranks(GetParam(), 2, [](Rank &self) {
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

TEST_P(Puts, RaiseSignalsWhileOtherThreadsRead) {
    run_ranks(GetParam(), 2, [](Rank &self) {
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

// Each rank sleeps until the descriptor reports an arrival. A lost wake-up shows as a poll that
// times out.
TEST_P(Puts, WakeASleepingThreadForEveryArrival) {
    run_ranks(GetParam(), 2, [](Rank &self) {
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

}  // namespace
}  // namespace vescomm::internal
