// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives on private arrays of ranks that have found one another far: their writes into the
// staging buffer bypass the caches, except in probes.
#include "support/array_calls.h"

namespace vescomm::internal::testing_support {
namespace {

constexpr std::int64_t count = 60'000;  // several chunks
constexpr int rounds = 40;  // of five calls: some are probes

// Makes this rank find the others far: slow reads, and a trial of fast ones.
void emulate_far(vescomm_comm_t *comm) {
    ReadDistance &distance = comm->calls->staging()->distance();
    for (std::uint64_t sequence = 1; sequence <= 2 * ReadDistance::enough + 1; ++sequence)
        distance.observe(sequence, 1, sequence <= ReadDistance::enough ? 1 : 0.1);
}

TEST(FarArrays, HaveTheSameResults) {
    for (const TestSetup &setup : {two, three, TestSetup{Kind::node, {0, 0, 0, 0, 0}}}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const int rank = comm->value->rank(), ranks = comm->value->ranks();
            const auto all = static_cast<std::size_t>(ranks);
            emulate_far(comm);
            expect_in_step(comm);
            EXPECT_TRUE(comm->calls->staging()->distance().far(1));
            for (int round = 0; round < rounds; ++round) {
                const auto of = [&](int k) { return static_cast<float>(100 * k + round); };
                float sum = 0;
                for (int k = 0; k < ranks; ++k) sum += of(k);
                const Floats mine(count, of(rank));
                Floats gathered(all * count), exchanged(all * count), reduced(count);
                const Floats blocks(all * count, of(rank));
                check(vescomm_all_gather(comm, mine.data(), gathered.data(), count, VESCOMM_F32,
                                         nullptr, nullptr, nullptr));
                check(vescomm_all_to_all(comm, blocks.data(), exchanged.data(), count, VESCOMM_F32,
                                         nullptr, nullptr, nullptr));
                check(vescomm_reduce_scatter(comm, blocks.data(), reduced.data(), count,
                                             VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr, nullptr));
                Floats summed = mine;
                check(testing_support::sum(comm, summed));
                Floats sent = mine;
                check(vescomm_broadcast(comm, sent.data(), count, VESCOMM_F32, round % ranks,
                                        nullptr, nullptr, nullptr));
                Floats expected;
                for (int k = 0; k < ranks; ++k) expected.insert(expected.end(), count, of(k));
                ASSERT_EQ(gathered, expected);
                ASSERT_EQ(exchanged, expected);
                ASSERT_EQ(reduced, Floats(count, sum));
                ASSERT_EQ(summed, Floats(count, sum));
                ASSERT_EQ(sent, Floats(count, of(round % ranks)));
            }
        });
    }
}

}  // namespace
}  // namespace vescomm::internal::testing_support
