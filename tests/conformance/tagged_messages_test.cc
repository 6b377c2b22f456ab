// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages with tags, and receives from any source, over every transport: in any order of the tags,
// many of them unexpected, in both directions of a pair at a time, in groups, and started again.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>

#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::TestSetup;
using Numbers = std::vector<std::int32_t>;

// The elements of message `number` of `from` to `to`: its three numbers, then others.
Numbers contents(int from, int to, int number, std::int64_t count) {
    Numbers contents(static_cast<std::size_t>(count));
    const std::int32_t head[] = {from, to, number};
    for (std::size_t i = 0; i < contents.size(); ++i)
        contents[i] = i < 3 ? head[i] : static_cast<std::int32_t>(i) * 7 + from + 11 * number;
    return contents;
}

vescomm_call_options_t with_tag(int tag) {
    auto options = vescomm_call_options_init();
    options.tag = tag;
    return options;
}

void send(vescomm_comm_t *comm, const Numbers &data, int peer, int tag,
          vescomm_request_t **request = nullptr) {
    const auto options = with_tag(tag);
    check(vescomm_send(comm, data.data(), static_cast<std::int64_t>(data.size()), VESCOMM_I32, peer,
                       &options, nullptr, request));
}

void receive(vescomm_comm_t *comm, Numbers &data, int peer, int tag,
             vescomm_request_t **request = nullptr) {
    const auto options = with_tag(tag);
    check(vescomm_receive(comm, data.data(), static_cast<std::int64_t>(data.size()), VESCOMM_I32,
                          peer, &options, nullptr, request));
}

vescomm_message_info_t message_of(vescomm_request_t *request, int index = 0) {
    auto info = vescomm_message_info_init();
    check(vescomm_request_get_message(request, index, &info));
    return info;
}

vescomm_message_info_t wait(vescomm_request_t *request) {
    check(vescomm_request_wait(request));
    const auto info = message_of(request);
    check(vescomm_request_free(request));
    return info;
}

// Sends that are under way, with their data.
class Sends {
public:
    explicit Sends(vescomm_comm_t *comm) : comm_(comm) {}
    void add(Numbers data, int peer, int tag) {
        data_.push_back(std::make_unique<Numbers>(std::move(data)));
        send(comm_, *data_.back(), peer, tag, &requests_.emplace_back());
    }
    void wait() {
        for (vescomm_request_t *request : requests_) {
            check(vescomm_request_wait(request));
            check(vescomm_request_free(request));
        }
        requests_.clear();
        data_.clear();
    }

private:
    vescomm_comm_t *comm_;
    std::vector<std::unique_ptr<Numbers>> data_;
    std::vector<vescomm_request_t *> requests_;
};

struct Place {
    int rank, ranks, left, right;
    explicit Place(const vescomm_comm_t *comm)
        : rank(comm->value->rank()),
          ranks(comm->value->ranks()),
          left((rank + ranks - 1) % ranks),
          right((rank + 1) % ranks) {}
};

std::vector<TestSetup> setups() {
    std::vector<TestSetup> all = testing_support::all_setups();
    all.push_back({Kind::tcp, {0, 1, 2, 3, 4, 5, 6}});
    return all;
}

class TaggedMessages : public testing::TestWithParam<TestSetup> {};

// More messages than a pair has eager buffers, of no, one and several chunks.
TEST_P(TaggedMessages, AreReceivedInTheReverseOrder) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const Place at(comm);
        constexpr int messages = 11;
        const auto count = [](int number) { return number % 5 == 4 ? 50'000 : number % 4 * 10; };
        for (int round = 0; round < 3; ++round) {
            Sends sends(comm);
            for (int tag = 0; tag < messages; ++tag)
                sends.add(contents(at.rank, at.right, tag, count(tag)), at.right, tag);
            for (int tag = messages - 1; tag >= 0; --tag) {
                Numbers output(static_cast<std::size_t>(count(tag)), -1);
                receive(comm, output, at.left, tag);
                EXPECT_EQ(output, contents(at.left, at.rank, tag, count(tag))) << tag;
            }
            sends.wait();
        }
    });
}

// Every rank sends to every rank, with random tags. Receives are posted in a random order of
// sources and tags, some of them before the sends. Messages of one source and tag keep their order.
TEST_P(TaggedMessages, OfOneSourceAndTagKeepTheirOrder) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const Place at(comm);
        std::mt19937 random(5);  // the same numbers on every rank
        for (int round = 0; round < 6; ++round) {
            struct Sent {
                int from, to, tag, number;
                std::int64_t count;
            };
            std::vector<Sent> all;
            const int messages = 4 * at.ranks + static_cast<int>(random() % 12);
            for (int number = 0; number < messages; ++number) {
                const auto below = [&](int end) {
                    return static_cast<int>(random() % static_cast<unsigned>(end));
                };
                const std::int64_t count = below(8) == 0 ? below(40'000) : below(40);
                all.push_back({below(at.ranks), below(at.ranks), below(3) * 1'000, number, count});
            }
            std::map<std::pair<int, int>, std::vector<Sent>> expected;  // by source and tag
            for (const Sent &sent : all)
                if (sent.to == at.rank) expected[{sent.from, sent.tag}].push_back(sent);
            std::vector<std::pair<int, int>> order;
            for (const auto &[key, of_key] : expected)
                order.insert(order.end(), of_key.size(), key);
            std::shuffle(order.begin(), order.end(), std::mt19937(random() + at.rank));

            struct Posted {
                Sent sent;
                Numbers output;
                vescomm_request_t *request = nullptr;
            };
            std::vector<std::unique_ptr<Posted>> posted;
            std::map<std::pair<int, int>, std::size_t> next;
            const auto post = [&](std::size_t end) {
                for (; posted.size() < end;) {
                    const auto key = order[posted.size()];
                    const Sent sent = expected[key][next[key]++];
                    auto &it = *posted.emplace_back(std::make_unique<Posted>());
                    it.sent = sent;
                    it.output.assign(static_cast<std::size_t>(sent.count), -1);
                    receive(comm, it.output, key.first, key.second, &it.request);
                }
            };
            Sends sends(comm);
            post(order.size() / 3);
            for (const Sent &sent : all)
                if (sent.from == at.rank)
                    sends.add(contents(sent.from, sent.to, sent.number, sent.count), sent.to,
                              sent.tag);
            check(vescomm_comm_progress(comm));
            post(order.size());
            for (const auto &it : posted) {
                const auto info = wait(it->request);
                EXPECT_EQ(info.source, it->sent.from);
                EXPECT_EQ(info.tag, it->sent.tag);
                EXPECT_EQ(info.count, it->sent.count);
                EXPECT_EQ(info.type, VESCOMM_I32);
                EXPECT_EQ(it->output,
                          contents(it->sent.from, at.rank, it->sent.number, it->sent.count));
            }
            sends.wait();
        }
    });
}

// All ranks send to rank 0, which does not know the next sender. Messages of one source keep their
// order, and a message with another tag waits.
TEST_P(TaggedMessages, ArriveFromAnySource) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const Place at(comm);
        constexpr int each = 9;
        int tag = 0;
        for (const std::int64_t count : {3, 700, 40'000}) {
            tag += 10;  // other ranks may be ahead
            Sends sends(comm);
            for (int number = 0; number < each; ++number)
                sends.add(contents(at.rank, 0, number, count), 0, tag);
            sends.add(contents(at.rank, 0, each, count), 0, tag + 1);
            if (at.rank == 0) {
                std::vector<int> next(static_cast<std::size_t>(at.ranks), 0);
                for (int i = 0; i < each * at.ranks; ++i) {
                    Numbers output(static_cast<std::size_t>(count), -1);
                    vescomm_request_t *request = nullptr;
                    receive(comm, output, VESCOMM_ANY_SOURCE, tag, &request);
                    const auto info = wait(request);
                    EXPECT_EQ(info.tag, tag);
                    EXPECT_EQ(output, contents(info.source, 0, next.at(info.source)++, count));
                }
                for (int source = at.ranks - 1; source >= 0; --source) {
                    Numbers output(static_cast<std::size_t>(count), -1);
                    receive(comm, output, source, tag + 1);
                    EXPECT_EQ(output, contents(source, 0, each, count));
                }
            }
            sends.wait();
        }
    });
}

// Receives of both kinds wait for the same messages: the oldest receive gets the oldest message.
TEST_P(TaggedMessages, GoToTheOldestReceiveThatFits) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const Place at(comm);
        constexpr int receives = 8;
        for (int round = 0; round < 4; ++round) {
            const bool early = round < 2;  // the receives are posted before the sends
            std::vector<Numbers> outputs(receives, Numbers(20, -1));
            std::vector<vescomm_request_t *> requests(receives);
            Sends sends(comm);
            const auto post = [&] {
                for (std::size_t i = 0; i < receives; ++i)
                    receive(comm, outputs[i], (i + round) % 2 == 0 ? VESCOMM_ANY_SOURCE : at.left,
                            1, &requests[i]);
            };
            if (early) post();
            check(vescomm_barrier(comm));
            for (int number = 0; number < receives; ++number)
                sends.add(contents(at.rank, at.right, number, 20), at.right, 1);
            if (!early) post();
            for (int i = 0; i < receives; ++i) {
                const auto info = wait(requests[static_cast<std::size_t>(i)]);
                EXPECT_EQ(info.source, at.left);
                EXPECT_EQ(outputs[static_cast<std::size_t>(i)], contents(at.left, at.rank, i, 20));
            }
            sends.wait();
        }
    });
}

// All messages have arrived before the first receive. A source with many of them does not keep
// those of the others waiting.
TEST(ReceivesFromAnySource, TakeOneMessageOfEachSourceAfterAnother) {
    for (const TestSetup &setup :
         {TestSetup{Kind::node, {0, 0, 0, 0}}, TestSetup{Kind::loopback, {0, 0, 0, 0}}}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const Place at(comm);
            constexpr int each = 4;  // as many as are sent before they are received
            if (at.rank > 0)
                for (int number = 0; number < each; ++number)
                    send(comm, contents(at.rank, 0, number, 5), 0, 2);
            check(vescomm_barrier(comm));
            if (at.rank > 0) return;
            for (int number = 0; number < each; ++number) {
                std::vector<int> senders;
                for (int i = 1; i < at.ranks; ++i) {
                    Numbers output(5);
                    vescomm_request_t *request = nullptr;
                    receive(comm, output, VESCOMM_ANY_SOURCE, 2, &request);
                    senders.push_back(wait(request).source);
                    EXPECT_EQ(output, contents(senders.back(), 0, number, 5));
                }
                std::ranges::sort(senders);
                EXPECT_EQ(senders, (std::vector<int>{1, 2, 3}));
            }
        });
    }
}

// Both directions of every pair are under way at the same time, with different tags.
TEST_P(TaggedMessages, PassInBothDirectionsOfAPairAtATime) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const Place at(comm);
        for (int round = 0; round < 40; ++round) {
            const std::int64_t count = round % 8 == 7 ? 70'000 : round % 4;
            Sends sends(comm);
            std::vector<Numbers> outputs(static_cast<std::size_t>(at.ranks));
            std::vector<vescomm_request_t *> requests(outputs.size());
            const auto tag = [&](int from, int to) { return 1 + from * 100 + to * 7 + round % 3; };
            for (int peer = 0; peer < at.ranks; ++peer) {
                sends.add(contents(at.rank, peer, round, count), peer, tag(at.rank, peer));
                auto &output = outputs[static_cast<std::size_t>(peer)];
                output.assign(static_cast<std::size_t>(count), -1);
                receive(comm, output, round % 2 == 0 ? peer : VESCOMM_ANY_SOURCE,
                        tag(peer, at.rank), &requests[static_cast<std::size_t>(peer)]);
            }
            for (int peer = 0; peer < at.ranks; ++peer) {
                const auto info = wait(requests[static_cast<std::size_t>(peer)]);
                EXPECT_EQ(info.source, peer);
                EXPECT_EQ(info.tag, tag(peer, at.rank));
                EXPECT_EQ(outputs[static_cast<std::size_t>(peer)],
                          contents(peer, at.rank, round, count));
            }
            sends.wait();
        }
    });
}

TEST_P(TaggedMessages, OfAGroupAreNumberedByTheirReceives) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const Place at(comm);
        for (int round = 0; round < 3; ++round) {
            const Numbers mine = contents(at.rank, at.right, round, 30);
            Numbers first(30, -1), second(30, -1);
            float one = 1;
            vescomm_request_t *request = nullptr;
            check(vescomm_group_begin(comm));
            receive(comm, first, at.left, 8);
            send(comm, mine, at.right, 9);
            check(vescomm_all_reduce(comm, &one, &one, 1, VESCOMM_F32, VESCOMM_SUM, nullptr,
                                     nullptr, nullptr));
            receive(comm, second, VESCOMM_ANY_SOURCE, 9);
            send(comm, mine, at.right, 8);
            check(vescomm_group_end(comm, &request));
            check(vescomm_request_wait(request));
            EXPECT_EQ(message_of(request, 0).tag, 8);
            EXPECT_EQ(message_of(request, 1).tag, 9);
            EXPECT_EQ(message_of(request, 1).source, at.left);
            auto info = vescomm_message_info_init();
            EXPECT_EQ(vescomm_request_get_message(request, 2, &info),
                      VESCOMM_ERROR_INVALID_ARGUMENT);
            EXPECT_STREQ(vescomm_get_last_error(),
                         "vescomm_request_get_message: index is 2, and the request receives 2 "
                         "messages");
            check(vescomm_request_free(request));
            EXPECT_EQ(first, contents(at.left, at.rank, round, 30));
            EXPECT_EQ(second, first);
            EXPECT_EQ(one, static_cast<float>(at.ranks));
        }
    });
}

// Every run finds its message anew.
TEST_P(TaggedMessages, AreReceivedByRequestsThatAreStartedAgain) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const Place at(comm);
        if (at.rank > 0) {
            for (int number = 0; number < 5; ++number)
                send(comm, contents(at.rank, 0, number, 100), 0, 3);
            return;
        }
        std::vector<int> next(static_cast<std::size_t>(at.ranks), 0);
        vescomm_request_t *request = nullptr;
        Numbers output(100);
        for (int i = 0; i < 5 * (at.ranks - 1); ++i) {
            if (request == nullptr) receive(comm, output, VESCOMM_ANY_SOURCE, 3, &request);
            else check(vescomm_request_start(request, nullptr));
            check(vescomm_request_wait(request));
            const int source = message_of(request).source;
            EXPECT_EQ(output,
                      contents(source, 0, next.at(static_cast<std::size_t>(source))++, 100));
        }
        check(vescomm_request_free(request));
    });
}

TEST_P(TaggedMessages, WithoutATagHaveTagZero) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const Place at(comm);
        const std::int32_t mine = at.rank;
        std::int32_t other = -1, next = -1;
        check(vescomm_send(comm, &mine, 1, VESCOMM_I32, at.right, nullptr, nullptr, nullptr));
        send(comm, {mine + 100}, at.right, 0);
        Numbers output(1);
        vescomm_request_t *request = nullptr;
        receive(comm, output, VESCOMM_ANY_SOURCE, 0, &request);
        EXPECT_EQ(wait(request).tag, 0);
        other = output[0];
        check(vescomm_receive(comm, &next, 1, VESCOMM_I32, at.left, nullptr, nullptr, nullptr));
        EXPECT_EQ(other, at.left);
        EXPECT_EQ(next, at.left + 100);
    });
}

// The receiver does not know the length of messages of 2^22 elements before their receives.
TEST(LargeUnexpectedMessages, LetSmallOnesPass) {
    for (const TestSetup &setup : {TestSetup{Kind::node, {0, 0}}, TestSetup{Kind::tcp, {0, 1}}}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const Place at(comm);
            constexpr std::int64_t large = (std::int64_t{1} << 22) + 5;
            Sends sends(comm);
            for (int tag = 1; tag <= 3; ++tag)
                sends.add(contents(at.rank, at.right, tag, large), at.right, tag);
            for (int number = 0; number < 10; ++number)
                sends.add(contents(at.rank, at.right, number, 10), at.right, 4);
            for (int number = 0; number < 10; ++number) {
                Numbers small(10);
                receive(comm, small, at.left, 4);
                EXPECT_EQ(small, contents(at.left, at.rank, number, 10));
            }
            for (int tag = 3; tag >= 1; --tag) {
                Numbers output(large);
                receive(comm, output, at.left, tag);
                EXPECT_EQ(output, contents(at.left, at.rank, tag, large));
            }
            sends.wait();
        });
    }
}

// A message that is being copied when its receive comes is received completely.
TEST(LongUnexpectedMessages, AreCopiedChunkByChunk) {
    for (const TestSetup &setup : {TestSetup{Kind::loopback, {0, 1}}, TestSetup{Kind::node, {0, 0}},
                                   TestSetup{Kind::tcp, {0, 1}}}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const Place at(comm);
            constexpr std::int64_t count = 1'000'000;
            Sends sends(comm);
            for (int tag = 1; tag <= 6; ++tag)
                sends.add(contents(at.rank, at.right, tag, count), at.right, tag);
            std::vector<Numbers> outputs(6, Numbers(count, -1));
            std::vector<vescomm_request_t *> requests(6);
            // The receive of message 6 makes this rank copy messages 1 and 2.
            for (int tag : {6, 1, 2, 5, 4, 3}) {
                const auto i = static_cast<std::size_t>(tag - 1);
                receive(comm, outputs[i], at.left, tag, &requests[i]);
                check(vescomm_comm_progress(comm));
            }
            for (int tag = 1; tag <= 6; ++tag) {
                const auto i = static_cast<std::size_t>(tag - 1);
                EXPECT_EQ(wait(requests[i]).tag, tag);
                EXPECT_EQ(outputs[i], contents(at.left, at.rank, tag, count)) << tag;
            }
            sends.wait();
        });
    }
}

// The calling thread and the progress thread match messages concurrently.
TEST(TaggedMessagesWithProgressThreads, ArriveFromAnySource) {
    TestSetup setup{Kind::node, {0, 0, 0}};
    setup.config.progress = "thread";
    run_array_ranks(setup, [](vescomm_comm_t *comm) {
        const Place at(comm);
        for (int round = 0; round < 200; ++round) {
            Sends sends(comm);
            for (int peer = 0; peer < at.ranks; ++peer)
                sends.add(contents(at.rank, peer, round, round % 50 + 3), peer, round % 7);
            std::vector<bool> seen(static_cast<std::size_t>(at.ranks));
            for (int i = 0; i < at.ranks; ++i) {
                Numbers output(static_cast<std::size_t>(round % 50 + 3));
                vescomm_request_t *request = nullptr;
                receive(comm, output, VESCOMM_ANY_SOURCE, round % 7, &request);
                const auto info = wait(request);
                EXPECT_EQ(output, contents(info.source, at.rank, round, round % 50 + 3));
                EXPECT_FALSE(seen[static_cast<std::size_t>(info.source)]);
                seen[static_cast<std::size_t>(info.source)] = true;
            }
            sends.wait();
            check(vescomm_barrier(comm));
        }
    });
}

// The progress thread writes the message of a running request, while the caller asks for it.
TEST(TaggedMessagesWithProgressThreads, AreRefusedUntilTheirRequestIsComplete) {
    for (const int source : {1, VESCOMM_ANY_SOURCE}) {
        TestSetup setup{Kind::node, {0, 0}};
        setup.config.progress = "thread";
        std::atomic<int> sent{0};
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            constexpr int rounds = 50;
            if (comm->value->rank() == 1) {
                for (int round = 0; round < rounds; ++round) {
                    send(comm, {round}, 0, 3);
                    ++sent;
                    check(vescomm_barrier(comm));
                }
                return;
            }
            for (int round = 0; round < rounds; ++round) {
                Numbers output(1);
                vescomm_request_t *request = nullptr;
                receive(comm, output, source, 3, &request);
                auto info = vescomm_message_info_init();
                for (int after = 0; after<100; after += sent> round ? 1 : 0) {
                    ASSERT_EQ(vescomm_request_get_message(request, 0, &info),
                              VESCOMM_ERROR_INVALID_ARGUMENT);
                    ASSERT_NE(std::string(vescomm_get_last_error()).find("still running"),
                              std::string::npos);
                }
                EXPECT_EQ(wait(request).source, 1);
                EXPECT_EQ(output[0], round);
                check(vescomm_barrier(comm));
            }
        });
    }
}

INSTANTIATE_TEST_SUITE_P(All, TaggedMessages, testing::ValuesIn(setups()),
                         [](const auto &info) { return testing_support::name_of(info.param); });

}  // namespace
}  // namespace vescomm::internal
