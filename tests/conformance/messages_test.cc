// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Send and receive over every transport: all pairs, rings, self-sends, random pairs and sizes with
// several messages in progress, in groups and alone, and between collectives.
#include <algorithm>
#include <random>

#include "base/types.h"
#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::run_array_ranks;

using Bytes = std::vector<std::byte>;

// A message between two ranks. `number` is its sequence number in the test.
struct TestMessage {
    int from = 0, to = 0;
    int number = 0;
    std::int64_t count = 0;
    vescomm_type_t type = VESCOMM_F32;

    std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(type); }
    Bytes contents() const {
        std::mt19937 random(static_cast<unsigned>(from + 100 * to + 10'000 * number));
        Bytes contents(bytes());
        const unsigned begin = random();
        for (std::size_t i = 0; i < contents.size(); ++i)
            contents[i] = static_cast<std::byte>(begin + i * 7 + (i >> 8) * 13);
        return contents;
    }
};

// The sending or receiving side of a message.
class Side {
public:
    Side(const TestMessage &message, bool receives) : message_(message), receives_(receives) {
        if (receives) bytes_.assign(message.bytes(), std::byte{77});
        else bytes_ = message.contents();
    }
    void call(vescomm_comm_t *comm, vescomm_request_t **request) {
        if (receives_)
            check(vescomm_receive(comm, bytes_.data(), message_.count, message_.type, message_.from,
                                  nullptr, nullptr, request));
        else
            check(vescomm_send(comm, bytes_.data(), message_.count, message_.type, message_.to,
                               nullptr, nullptr, request));
    }
    void verify() const {
        EXPECT_EQ(bytes_ == message_.contents(), true)
            << message_.count << " " << name_of_type(message_.type) << " from " << message_.from
            << " to " << message_.to << ", number " << message_.number;
    }

private:
    TestMessage message_;
    bool receives_;
    Bytes bytes_;
};

// The sends and receives of a rank, in the order of `messages`.
std::vector<Side> sides_of(int rank, const std::vector<TestMessage> &messages) {
    std::vector<Side> sides;
    for (const TestMessage &message : messages) {
        if (message.to == rank) sides.emplace_back(message, true);
        if (message.from == rank) sides.emplace_back(message, false);
    }
    return sides;
}

void exchange_in_a_group(vescomm_comm_t *comm, std::vector<Side> &sides) {
    check(vescomm_group_begin(comm));
    for (Side &side : sides) side.call(comm, nullptr);
    check(vescomm_group_end(comm, nullptr));
    for (const Side &side : sides) side.verify();
}

void exchange_with_requests(vescomm_comm_t *comm, std::vector<Side> &sides, unsigned order) {
    std::vector<vescomm_request_t *> requests(sides.size());
    for (std::size_t i = 0; i < sides.size(); ++i) sides[i].call(comm, &requests[i]);
    std::shuffle(requests.begin(), requests.end(), std::mt19937(order));
    for (vescomm_request_t *request : requests) {
        check(vescomm_request_wait(request));
        check(vescomm_request_free(request));
    }
    for (const Side &side : sides) side.verify();
}

std::int64_t random_count(std::mt19937 &random) {
    switch (random() % 6) {
        case 0:
            return 0;
        case 1:
        case 2:
        case 3:
            return random() % 50;
        case 4:
            return random() % 20'000;
        default:
            return random() % 300'000;
    }
}

std::vector<TestMessage> random_messages(int ranks, int count, std::mt19937 &random) {
    std::vector<TestMessage> messages;
    for (int i = 0; i < count; ++i) {
        TestMessage &message = messages.emplace_back();
        message.from = static_cast<int>(random() % static_cast<unsigned>(ranks));
        message.to = static_cast<int>(random() % static_cast<unsigned>(ranks));
        message.number = i;
        message.count = random_count(random);
        message.type = static_cast<vescomm_type_t>(VESCOMM_F32 + random() % last_type);
    }
    return messages;
}

void expect_in_step(vescomm_comm_t *comm) {
    std::vector<float> ones(1'000, 1);
    check(vescomm_all_reduce(comm, ones.data(), ones.data(), 1'000, VESCOMM_F32, VESCOMM_SUM,
                             nullptr, nullptr, nullptr));
    EXPECT_EQ(ones, std::vector<float>(1'000, static_cast<float>(comm->value->ranks())));
}

class Messages : public testing::TestWithParam<testing_support::TestSetup> {};

TEST_P(Messages, AllPairsExchangeInOneGroup) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int ranks = comm->value->ranks();
        for (const std::int64_t count : {0, 1, 100, 40'000}) {
            std::vector<TestMessage> messages;
            for (int from = 0; from < ranks; ++from)
                for (int to = 0; to < ranks; ++to)
                    messages.push_back({from, to, 0, count + (count > 0 ? from : 0), VESCOMM_F32});
            std::vector<Side> sides = sides_of(comm->value->rank(), messages);
            exchange_in_a_group(comm, sides);
        }
    });
}

// Rank 0 sends first, all others receive first. Calls are blocking, without groups.
TEST_P(Messages, PassATokenAroundARing) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
        for (const std::int64_t count : {1, 3'000, 100'000}) {
            if (ranks == 1 && count > 3'000) continue;  // too large for the eager buffers
            std::vector<double> token(static_cast<std::size_t>(count), 1);
            const auto pass = [&] {
                check(vescomm_send(comm, token.data(), count, VESCOMM_F64, right, nullptr, nullptr,
                                   nullptr));
            };
            if (rank == 0) pass();
            check(vescomm_receive(comm, token.data(), count, VESCOMM_F64, left, nullptr, nullptr,
                                  nullptr));
            for (double &value : token) value += 1;
            if (rank != 0) pass();
            if (rank > 0) continue;
            EXPECT_EQ(token, std::vector<double>(token.size(), 1 + ranks));
        }
    });
}

TEST_P(Messages, SelfSendsOfAnySizeArrive) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        for (const std::int64_t count : {0, 5, 20'000, 3'000'000}) {
            std::vector<Side> sides = sides_of(rank, {{rank, rank, 1, count, VESCOMM_I16}});
            exchange_with_requests(comm, sides, 0);
            exchange_in_a_group(comm, sides);
        }
    });
}

// Small messages are eager, up to the number of slots: all ranks can send before any receives.
TEST_P(Messages, SmallSendsCompleteBeforeTheirReceives) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
        for (int i = 0; i < 20; ++i) {
            std::vector<Side> sides;
            for (int k = 0; k < 4; ++k)
                sides.emplace_back(TestMessage{rank, right, 4 * i + k, 2'048, VESCOMM_U8}, false);
            for (int k = 0; k < 4; ++k)
                sides.emplace_back(TestMessage{left, rank, 4 * i + k, 2'048, VESCOMM_U8}, true);
            for (Side &side : sides) side.call(comm, nullptr);
            for (const Side &side : sides) side.verify();
        }
    });
}

TEST_P(Messages, RandomMessagesArriveInOrder) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        std::mt19937 random(7);
        for (int round = 0; round < 12; ++round) {
            const std::vector<TestMessage> messages = random_messages(ranks, 5 + ranks * 6, random);
            std::vector<Side> sides = sides_of(rank, messages);
            if (round % 2 == 0) exchange_in_a_group(comm, sides);
            else exchange_with_requests(comm, sides, static_cast<unsigned>(rank + round));
            if (round % 3 == 0) expect_in_step(comm);
        }
    });
}

// Rank 0 receives with blocking calls, one after another.
TEST_P(Messages, ManySendersToOneRankArriveInOrder) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        std::vector<TestMessage> messages;
        for (int i = 0; i < 50; ++i)
            for (int from = 1; from < ranks; ++from)
                messages.push_back({from, 0, i, i % 10 == 9 ? 60'000 : i, VESCOMM_I32});
        std::vector<Side> sides = sides_of(rank, messages);
        if (rank > 0) return exchange_with_requests(comm, sides, static_cast<unsigned>(rank));
        for (Side &side : sides) {
            side.call(comm, nullptr);
            side.verify();
        }
    });
}

TEST_P(Messages, RunAlongsideCollectives) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        std::mt19937 random(8);
        for (int round = 0; round < 10; ++round) {
            const std::vector<TestMessage> messages = random_messages(ranks, 2 * ranks, random);
            std::vector<Side> sides = sides_of(rank, messages);
            std::vector<float> ones(10 + 3'000 * round, 1), other(20, 2);
            const auto sum = [&](std::vector<float> &data) {
                check(vescomm_all_reduce(comm, data.data(), data.data(),
                                         static_cast<std::int64_t>(data.size()), VESCOMM_F32,
                                         VESCOMM_SUM, nullptr, nullptr, nullptr));
            };
            vescomm_request_t *request = nullptr;
            check(vescomm_group_begin(comm));
            sum(ones);
            for (Side &side : sides) side.call(comm, nullptr);
            sum(other);
            check(vescomm_group_end(comm, &request));
            expect_in_step(comm);
            check(vescomm_request_wait(request));
            check(vescomm_request_free(request));
            for (const Side &side : sides) side.verify();
            EXPECT_EQ(ones, std::vector<float>(ones.size(), static_cast<float>(ranks)));
            EXPECT_EQ(other, std::vector<float>(20, static_cast<float>(2 * ranks)));
        }
    });
}

TEST_P(Messages, RequestsCanBeRestarted) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        std::vector<std::int64_t> source(30'000), output(30'000);
        vescomm_request_t *request = nullptr;
        check(vescomm_group_begin(comm));
        check(vescomm_send(comm, source.data(), 30'000, VESCOMM_I64, (rank + 1) % ranks, nullptr,
                           nullptr, nullptr));
        check(vescomm_receive(comm, output.data(), 30'000, VESCOMM_I64, (rank + ranks - 1) % ranks,
                              nullptr, nullptr, nullptr));
        check(vescomm_group_end(comm, &request));
        for (int run = 1; run <= 5; ++run) {
            check(vescomm_request_wait(request));
            source.assign(source.size(), 100 * run + rank);
            check(vescomm_request_start(request, nullptr));
            check(vescomm_request_wait(request));
            EXPECT_EQ(output, std::vector<std::int64_t>(output.size(),
                                                        100 * run + (rank + ranks - 1) % ranks));
        }
        check(vescomm_request_free(request));
    });
}

// The calling thread and the progress thread advance requests concurrently.
TEST(MessagesWithProgressThreads, ArriveInOrder) {
    testing_support::TestSetup setup{testing_support::Kind::node, {0, 0, 0}};
    setup.config.progress = "thread";
    run_array_ranks(setup, [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        std::mt19937 random(9);
        for (int round = 0; round < 20; ++round) {
            const std::vector<TestMessage> messages = random_messages(3, 20, random);
            std::vector<Side> sides = sides_of(rank, messages);
            if (round % 2 == 0) exchange_in_a_group(comm, sides);
            else exchange_with_requests(comm, sides, static_cast<unsigned>(rank + round));
        }
    });
}

INSTANTIATE_TEST_SUITE_P(All, Messages, testing::ValuesIn(testing_support::all_setups()),
                         [](const auto &info) { return testing_support::name_of(info.param); });

}  // namespace
}  // namespace vescomm::internal
