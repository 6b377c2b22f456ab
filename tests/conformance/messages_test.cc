// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Send and receive over every transport: everyone with everyone, rings, oneself, random pairs of
// any size with several under way, in groups and alone, among collectives.
#include <algorithm>
#include <random>

#include "base/types.h"
#include "support/array_ranks.h"

namespace vescomm {
namespace {

using testing_support::check;
using testing_support::run_array_ranks;

using Bytes = std::vector<std::byte>;

// The message that two ranks exchange as their n-th.
struct Letter {
    int from = 0, to = 0;
    int number = 0;
    std::int64_t count = 0;
    vescomm_type_t type = VESCOMM_F32;

    std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(type); }
    Bytes text() const {
        std::mt19937 random(static_cast<unsigned>(from + 100 * to + 10'000 * number));
        Bytes text(bytes());
        const unsigned begin = random();
        for (std::size_t i = 0; i < text.size(); ++i)
            text[i] = static_cast<std::byte>(begin + i * 7 + (i >> 8) * 13);
        return text;
    }
};

// One side of a letter.
class Side {
public:
    Side(const Letter &letter, bool receives) : letter_(letter), receives_(receives) {
        if (receives) bytes_.assign(letter.bytes(), std::byte{77});
        else bytes_ = letter.text();
    }
    void call(vescomm_comm_t *comm, vescomm_request_t **request) {
        if (receives_)
            check(vescomm_receive(comm, bytes_.data(), letter_.count, letter_.type, letter_.from,
                                  nullptr, request));
        else
            check(vescomm_send(comm, bytes_.data(), letter_.count, letter_.type, letter_.to,
                               nullptr, request));
    }
    void verify() const {
        EXPECT_EQ(bytes_ == letter_.text(), true)
            << letter_.count << " " << name_of_type(letter_.type) << " from " << letter_.from
            << " to " << letter_.to << ", number " << letter_.number;
    }

private:
    Letter letter_;
    bool receives_;
    Bytes bytes_;
};

// Of a rank, in the order of the letters.
std::vector<Side> sides_of(int rank, const std::vector<Letter> &letters) {
    std::vector<Side> sides;
    for (const Letter &letter : letters) {
        if (letter.to == rank) sides.emplace_back(letter, true);
        if (letter.from == rank) sides.emplace_back(letter, false);
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

std::vector<Letter> random_letters(int ranks, int count, std::mt19937 &random) {
    std::vector<Letter> letters;
    for (int i = 0; i < count; ++i) {
        Letter &letter = letters.emplace_back();
        letter.from = static_cast<int>(random() % static_cast<unsigned>(ranks));
        letter.to = static_cast<int>(random() % static_cast<unsigned>(ranks));
        letter.number = i;
        letter.count = random_count(random);
        letter.type = static_cast<vescomm_type_t>(random() % (VESCOMM_U64 + 1));
    }
    return letters;
}

void expect_in_step(vescomm_comm_t *comm) {
    std::vector<float> ones(1'000, 1);
    check(vescomm_all_reduce(comm, ones.data(), ones.data(), 1'000, VESCOMM_F32, VESCOMM_SUM,
                             nullptr, nullptr));
    EXPECT_EQ(ones, std::vector<float>(1'000, static_cast<float>(comm->value->ranks())));
}

class Messages : public testing::TestWithParam<testing_support::TestSetup> {};

TEST_P(Messages, FromEveryoneToEveryoneArriveInOneGroup) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int ranks = comm->value->ranks();
        for (const std::int64_t count : {0, 1, 100, 40'000}) {
            std::vector<Letter> letters;
            for (int from = 0; from < ranks; ++from)
                for (int to = 0; to < ranks; ++to)
                    letters.push_back({from, to, 0, count + (count > 0 ? from : 0), VESCOMM_F32});
            std::vector<Side> sides = sides_of(comm->value->rank(), letters);
            exchange_in_a_group(comm, sides);
        }
    });
}

// The first rank sends first, all others receive first. Nobody has a group or a request.
TEST_P(Messages, GoRoundARing) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
        for (const std::int64_t count : {1, 3'000, 100'000}) {
            if (ranks == 1 && count > 3'000) continue;  // not taken before it is sent
            std::vector<double> token(static_cast<std::size_t>(count), 1);
            const auto pass = [&] {
                check(
                    vescomm_send(comm, token.data(), count, VESCOMM_F64, right, nullptr, nullptr));
            };
            if (rank == 0) pass();
            check(vescomm_receive(comm, token.data(), count, VESCOMM_F64, left, nullptr, nullptr));
            for (double &value : token) value += 1;
            if (rank != 0) pass();
            if (rank > 0) continue;
            EXPECT_EQ(token, std::vector<double>(token.size(), 1 + ranks));
        }
    });
}

TEST_P(Messages, ToOneselfArriveWhateverTheirSize) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        for (const std::int64_t count : {0, 5, 20'000, 3'000'000}) {
            std::vector<Side> sides = sides_of(rank, {{rank, rank, 1, count, VESCOMM_I16}});
            exchange_with_requests(comm, sides, 0);
            exchange_in_a_group(comm, sides);
        }
    });
}

// What is small is handed over, as many as there are slots: nobody has to receive before the other
// has sent.
TEST_P(Messages, OfAFewKilobytesAreSentBeforeTheyAreReceived) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
        for (int i = 0; i < 20; ++i) {
            std::vector<Side> sides;
            for (int k = 0; k < 4; ++k)
                sides.emplace_back(Letter{rank, right, 4 * i + k, 2'048, VESCOMM_U8}, false);
            for (int k = 0; k < 4; ++k)
                sides.emplace_back(Letter{left, rank, 4 * i + k, 2'048, VESCOMM_U8}, true);
            for (Side &side : sides) side.call(comm, nullptr);
            for (const Side &side : sides) side.verify();
        }
    });
}

TEST_P(Messages, AtRandomArriveInOrder) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        std::mt19937 random(7);
        for (int round = 0; round < 12; ++round) {
            const std::vector<Letter> letters = random_letters(ranks, 5 + ranks * 6, random);
            std::vector<Side> sides = sides_of(rank, letters);
            if (round % 2 == 0) exchange_in_a_group(comm, sides);
            else exchange_with_requests(comm, sides, static_cast<unsigned>(rank + round));
            if (round % 3 == 0) expect_in_step(comm);
        }
    });
}

// Those who receive do nothing but that, one after another.
TEST_P(Messages, OfManyUnderWayToOneRankAreServedInOrder) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        std::vector<Letter> letters;
        for (int i = 0; i < 50; ++i)
            for (int from = 1; from < ranks; ++from)
                letters.push_back({from, 0, i, i % 10 == 9 ? 60'000 : i, VESCOMM_I32});
        std::vector<Side> sides = sides_of(rank, letters);
        if (rank > 0) return exchange_with_requests(comm, sides, static_cast<unsigned>(rank));
        for (Side &side : sides) {
            side.call(comm, nullptr);
            side.verify();
        }
    });
}

TEST_P(Messages, AndCollectivesDoNotDisturbEachOther) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        std::mt19937 random(8);
        for (int round = 0; round < 10; ++round) {
            const std::vector<Letter> letters = random_letters(ranks, 2 * ranks, random);
            std::vector<Side> sides = sides_of(rank, letters);
            std::vector<float> ones(10 + 3'000 * round, 1), other(20, 2);
            const auto sum = [&](std::vector<float> &data) {
                check(vescomm_all_reduce(comm, data.data(), data.data(),
                                         static_cast<std::int64_t>(data.size()), VESCOMM_F32,
                                         VESCOMM_SUM, nullptr, nullptr));
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

TEST_P(Messages, CanBeStartedAgain) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        std::vector<std::int64_t> source(30'000), output(30'000);
        vescomm_request_t *request = nullptr;
        check(vescomm_group_begin(comm));
        check(vescomm_send(comm, source.data(), 30'000, VESCOMM_I64, (rank + 1) % ranks, nullptr,
                           nullptr));
        check(vescomm_receive(comm, output.data(), 30'000, VESCOMM_I64, (rank + ranks - 1) % ranks,
                              nullptr, nullptr));
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

// Whoever moves a request along, of those under way on either side.
TEST(MessagesWithProgressThreads, ArriveInOrder) {
    testing_support::TestSetup setup{testing_support::Kind::node, {0, 0, 0}};
    setup.config.progress = "thread";
    run_array_ranks(setup, [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        std::mt19937 random(9);
        for (int round = 0; round < 20; ++round) {
            const std::vector<Letter> letters = random_letters(3, 20, random);
            std::vector<Side> sides = sides_of(rank, letters);
            if (round % 2 == 0) exchange_in_a_group(comm, sides);
            else exchange_with_requests(comm, sides, static_cast<unsigned>(rank + round));
        }
    });
}

INSTANTIATE_TEST_SUITE_P(All, Messages, testing::ValuesIn(testing_support::all_setups()),
                         [](const auto &info) { return testing_support::name_of(info.param); });

}  // namespace
}  // namespace vescomm
