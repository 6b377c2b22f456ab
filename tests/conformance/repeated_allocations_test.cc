// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A repeated call on arrays, or a repeated group of calls, allocates nothing, and a new group not
// more than its calls need.
#include <limits>

#include "support/array_calls.h"
#include "support/failing_allocations.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Failing;
using testing_support::Floats;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

// The allocations of this thread in 50 of the calls, after some that made what is kept.
std::uint64_t allocations_of(const std::function<void()> &call) {
    for (int i = 0; i < 5; ++i) call();
    testing_support::fail_allocation(std::numeric_limits<std::uint64_t>::max(), Failing::one);
    for (int i = 0; i < 50; ++i) call();
    return testing_support::stop_failing().made;
}

class RepeatedAllocations : public testing::TestWithParam<int> {};

TEST_P(RepeatedAllocations, AreNone) {
    const int count = GetParam();
    for (const TestSetup &setup :
         {TestSetup{Kind::node, {0, 0}}, TestSetup{Kind::loopback, {0, 0, 0}}}) {
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            const int ranks = comm->value->ranks();
            const auto each = static_cast<std::size_t>(count);
            Floats source(each * static_cast<std::size_t>(ranks), 1), output(source), other(source);
            const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), count);
            const auto sum = [&](Floats &to, vescomm_request_t **request) {
                check(vescomm_all_reduce(comm, source.data(), to.data(), count, VESCOMM_F32,
                                         VESCOMM_SUM, nullptr, nullptr, request));
            };
            const auto gather = [&](vescomm_request_t **request) {
                check(vescomm_all_gather_v(comm, source.data(), output.data(), counts.data(),
                                           nullptr, VESCOMM_F32, nullptr, nullptr, request));
            };
            const auto end = [](vescomm_request_t *request) {
                check(vescomm_request_wait(request));
                check(vescomm_request_free(request));
            };
            EXPECT_EQ(allocations_of([&] { sum(output, nullptr); }), 0U) << "all_reduce";
            EXPECT_EQ(allocations_of([&] { gather(nullptr); }), 0U) << "all_gather_v";
            EXPECT_EQ(allocations_of([&] {
                          check(vescomm_all_to_all_v(comm, source.data(), counts.data(), nullptr,
                                                     output.data(), counts.data(), nullptr,
                                                     VESCOMM_F32, nullptr, nullptr, nullptr));
                      }),
                      0U)
                << "all_to_all_v";
            EXPECT_EQ(allocations_of([&] {
                          check(vescomm_all_gather(comm, source.data(), output.data(), count,
                                                   VESCOMM_F32, nullptr, nullptr, nullptr));
                          check(vescomm_reduce_scatter(comm, source.data(), output.data(), count,
                                                       VESCOMM_F32, VESCOMM_MAX, nullptr, nullptr,
                                                       nullptr));
                          check(vescomm_all_to_all(comm, source.data(), output.data(), count,
                                                   VESCOMM_F32, nullptr, nullptr, nullptr));
                      }),
                      0U)
                << "calls with one count";
            EXPECT_EQ(allocations_of([&] {
                          vescomm_request_t *first = nullptr, *second = nullptr;
                          sum(output, &first);
                          sum(other, &second);
                          end(first);
                          end(second);
                      }),
                      0U)
                << "two requests";
            EXPECT_EQ(allocations_of([&] {
                          vescomm_request_t *request = nullptr;
                          check(vescomm_group_begin(comm));
                          sum(output, nullptr);
                          sum(other, nullptr);
                          check(vescomm_group_end(comm, &request));
                          end(request);
                          check(vescomm_group_begin(comm));
                          sum(other, nullptr);
                          check(vescomm_group_end(comm, nullptr));
                      }),
                      0U)
                << "groups";
            const int rank = comm->value->rank();
            const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
            for (const int peer : {left, VESCOMM_ANY_SOURCE}) {
                int number = 0;  // of the pass: every second one has other tags
                const auto pass = [&] {
                    auto options = vescomm_call_options_init();
                    const int first = number++ % 2 * 10;
                    vescomm_request_t *sends[3] = {}, *receive = nullptr;
                    for (int i = 0; i < 3; ++i) {
                        options.tag = first + i;
                        check(vescomm_send(comm, source.data(), count, VESCOMM_F32, right, &options,
                                           nullptr, &sends[i]));
                    }
                    for (int i = 2; i >= 0; --i) {  // the other ones are unexpected
                        options.tag = first + i;
                        check(vescomm_receive(comm, output.data(), count, VESCOMM_F32, peer,
                                              &options, nullptr, &receive));
                        end(receive);
                    }
                    for (vescomm_request_t *send : sends) end(send);
                };
                EXPECT_EQ(allocations_of(pass), 0U) << "messages with tags, peer " << peer;
            }
        });
    }
}

// More arrays than a table without space for collisions would find again.
TEST(RepeatedAllocationsOfManyArrays, AreNone) {
    run_array_ranks({Kind::node, {0, 0}}, [](vescomm_comm_t *comm) {
        constexpr std::size_t arrays = 100, each = 16;
        Floats source(arrays * 2 * each, 1), output(arrays * 2 * each);
        const auto exchange_all = [&] {
            for (std::size_t i = 0; i < source.size(); i += 2 * each)
                check(vescomm_all_to_all(comm, &source[i], &output[i], each, VESCOMM_F32, nullptr,
                                         nullptr, nullptr));
        };
        EXPECT_EQ(allocations_of(exchange_all), 0U);
    });
}

// Allocated bytes grow as the calls do: no call copies all earlier ones.
TEST(AllocationsOfANewGroup, GrowWithItsCalls) {
    run_array_ranks({Kind::node, {0, 0}}, [](vescomm_comm_t *comm) {
        const auto bytes_of = [&](std::size_t calls) {
            Floats data(calls, 1);
            check(vescomm_group_begin(comm));
            testing_support::fail_allocation(std::numeric_limits<std::uint64_t>::max(),
                                             Failing::one);
            for (float &one : data)
                check(vescomm_all_reduce(comm, &one, &one, 1, VESCOMM_F32, VESCOMM_SUM, nullptr,
                                         nullptr, nullptr));
            const std::uint64_t bytes = testing_support::stop_failing().bytes;
            check(vescomm_group_end(comm, nullptr));
            EXPECT_EQ(data, Floats(calls, static_cast<float>(comm->value->ranks())));
            return bytes;
        };
        const std::uint64_t few = bytes_of(1000);
        EXPECT_LT(bytes_of(8000), 16 * few);
    });
}

INSTANTIATE_TEST_SUITE_P(Counts, RepeatedAllocations, testing::Values(0, 3, 1'000, 100'000));

}  // namespace
}  // namespace vescomm::internal
