// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Errors of collectives on arrays: ranks that make different calls, and requests that are destroyed
// while they run. groups_wrong_test.cc has those of groups.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <complex>
#include <numeric>

#include "base/thread_sanitizer.h"
#include "base/types.h"
#include "support/array_calls.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::expect_in_step;
using testing_support::Floats;
using testing_support::hurried;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::sum;
using testing_support::three;
using testing_support::two;

const testing_support::TestSetup apart{Kind::loopback, {0, 0, 1}};

// Every inter-node transport; tcp and ucx also without a progress thread.
std::vector<testing_support::TestSetup> setups_on_nodes(const std::vector<int> &node_of) {
    std::vector<testing_support::TestSetup> all;
    for (const Kind kind : testing_support::kinds_between_nodes()) {
        all.push_back({kind, node_of});
        if (kind == Kind::loopback) continue;
        all.push_back({kind, node_of});
        all.back().config.progress = "inline";
    }
    return all;
}

void expect_mismatch(vescomm_status_t status, const std::vector<std::string> &texts) {
    EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
    for (const std::string &text : texts)
        EXPECT_NE(std::string(vescomm_get_last_error()).find(text), std::string::npos)
            << vescomm_get_last_error();
}

// ---- ranks that make different calls ----

TEST(MismatchedArrayCalls, DifferentOperatorsAreReported) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        Floats data(100, 1);
        const bool odd = comm->value->rank() == 1;
        expect_mismatch(sum(comm, data, nullptr, odd ? VESCOMM_MAX : VESCOMM_SUM),
                        {"rank 0", "rank 1", "sum", "max"});
    });
}

// VESCOMM_BITWISE_XOR and VESCOMM_SUM have the same lower three bits.
TEST(MismatchedArrayCalls, ABitwiseOperatorAndASumAreReported) {
    for (const auto &setup : {two, apart}) {
        for (const vescomm_op_t op : {VESCOMM_BITWISE_OR, VESCOMM_BITWISE_XOR}) {
            run_array_ranks(setup, [op](vescomm_comm_t *comm) {
                std::vector<std::int32_t> data(100, 1);
                const bool odd = comm->value->rank() == 1;
                vescomm_status_t status = VESCOMM_OK;
                // A rank may complete its first calls before the mismatch is detected.
                for (int i = 0; i < 10 && status == VESCOMM_OK; ++i)
                    status = vescomm_all_reduce(comm, data.data(), data.data(), 100, VESCOMM_I32,
                                                odd ? op : VESCOMM_SUM, nullptr, nullptr, nullptr);
                expect_mismatch(status, {"all_reduce of i32 (sum", "rank 1",
                                         "all_reduce of i32 (" + name_of_op(op)});
            });
        }
    }
}

// VESCOMM_F32 and VESCOMM_C128 have the same lower four bits.
TEST(MismatchedArrayCalls, ComplexAndFloatElementsAreReported) {
    for (const auto &setup : {two, apart}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            std::vector<std::complex<double>> data(100, 1);
            const bool odd = comm->value->rank() == 1;
            vescomm_status_t status = VESCOMM_OK;
            for (int i = 0; i < 10 && status == VESCOMM_OK; ++i)
                status = vescomm_all_reduce(comm, data.data(), data.data(), 100,
                                            odd ? VESCOMM_C128 : VESCOMM_F32, VESCOMM_SUM, nullptr,
                                            nullptr, nullptr);
            expect_mismatch(status, {"all_reduce of f32", "rank 1", "all_reduce of c128"});
        });
    }
}

TEST(MismatchedArrayCalls, DifferentEqualCountsAreReported) {
    for (const auto &setup : {two, apart}) {
        for (const int which : {0, 1, 2}) {
            std::atomic<int> shown = 0;
            run_array_ranks(setup, [which, &shown](vescomm_comm_t *comm) {
                const int rank = comm->value->rank();
                const std::int64_t count = rank == 1 ? 11 : 10;
                Floats source(40, 1), output(40);
                const auto call = [&] {
                    if (which == 0)
                        return vescomm_all_gather(comm, source.data(), output.data(), count,
                                                  VESCOMM_F32, nullptr, nullptr, nullptr);
                    if (which == 1)
                        return vescomm_reduce_scatter(comm, source.data(), output.data(), count,
                                                      VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr,
                                                      nullptr);
                    return vescomm_all_to_all(comm, source.data(), output.data(), count,
                                              VESCOMM_F32, nullptr, nullptr, nullptr);
                };
                vescomm_status_t status = VESCOMM_OK;
                // A rank may complete its first calls before the mismatch is detected.
                for (int i = 0; i < 10 && status == VESCOMM_OK; ++i) status = call();
                const char *names[] = {"all_gather_v of f32", "reduce_scatter_v of f32 (sum",
                                       "all_to_all_v of f32"};
                expect_mismatch(status, {"rank 1", names[which], ": they differ in counts"});
                // Each rank adds its own call, unless it learns of the error before its first one.
                const std::string error = vescomm_get_last_error();
                if (error.find("; the latest call that rank ") == std::string::npos) return;
                ++shown;
                const std::string name = names[which];
                expect_mismatch(status, {"; the latest call that rank " + std::to_string(rank) +
                                         " started is " + name.substr(0, name.find(' ')) + " of " +
                                         std::to_string(comm->value->ranks() * count) + " f32 " +
                                         (which == 2 ? "sent" : "in all")});
            });
            EXPECT_GT(shown, 0);
        }
    }
}

TEST(MismatchedArrayCalls, AreReportedWithMoreCallsInProgressThanStagingSlots) {
    for (const auto &setup : {two, three, apart}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const bool odd = comm->value->rank() == 1;
            std::vector<Floats> data(12, Floats(100, 1));
            std::vector<vescomm_request_t *> requests(data.size());
            vescomm_status_t status = VESCOMM_OK;
            for (std::size_t i = 0; i < data.size() && status == VESCOMM_OK; ++i)
                status =
                    sum(comm, data[i], &requests[i], odd && i == 0 ? VESCOMM_MAX : VESCOMM_SUM);
            for (std::size_t i = 0; i < data.size() && status == VESCOMM_OK; ++i)
                status = vescomm_request_wait(requests[i]);
            expect_mismatch(status, {"rank 1", "sum", "max"});
            for (vescomm_request_t *request : requests) check(vescomm_request_free(request));
        });
    }
}

// A rank with nothing to exchange completes without comparing signatures. The next call detects the
// mismatch on all ranks.
TEST(MismatchedArrayCalls, AreReportedByTheNextCallIfARankHadNothingToExchange) {
    for (const auto &setup : setups_on_nodes({0, 1, 2, 2})) {
        for (const bool scatters : {false, true}) {
            run_array_ranks(setup, [&](vescomm_comm_t *comm) {
                using Counts = std::vector<std::int64_t>;
                const bool odd = comm->value->rank() == 1;
                const Counts counts = odd ? Counts{4096, 0, 100, 0} : Counts{1, 0, 0, 0};
                Floats source(5000, 1), output(5000, 0);
                const auto exchange = scatters ? vescomm_scatter_v : vescomm_gather_v;
                vescomm_status_t status =
                    exchange(comm, source.data(), output.data(), counts.data(), nullptr,
                             VESCOMM_F32, 3, nullptr, nullptr, nullptr);
                // A slow rank may already fail in the exchange.
                if (status == VESCOMM_OK) status = sum(comm, output);
                expect_mismatch(status,
                                {"rank 1", "all_reduce of f32",
                                 "or they differ in an earlier gather_v, scatter_v or broadcast"});
            });
        }
    }
}

TEST(MatchingArrayCalls, SucceedAfterScattersWithEmptyParts) {
    for (const auto &setup : setups_on_nodes({0, 1, 2, 2})) {
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            const std::vector<std::int64_t> counts{1, 0, 0, 0};
            Floats source(1, 7), output(1, 0);
            for (int root = 0; root < 4; ++root) {
                check(vescomm_scatter_v(comm, source.data(), output.data(), counts.data(), nullptr,
                                        VESCOMM_F32, root, nullptr, nullptr, nullptr));
                expect_in_step(comm);
                check(vescomm_gather_v(comm, source.data(), output.data(), counts.data(), nullptr,
                                       VESCOMM_F32, root, nullptr, nullptr, nullptr));
                expect_in_step(comm);
            }
        });
    }
}

// A root of a broadcast does not wait for other ranks. The later of two roots detects the other.
TEST(MismatchedArrayCalls, DifferentRootsAreReported) {
    run_array_ranks(three, [](vescomm_comm_t *comm) {
        Floats data(10, 1);
        const int root = comm->value->rank() == 2 ? 2 : 0;
        vescomm_status_t status = VESCOMM_OK;
        for (int i = 0; i < 20 && status == VESCOMM_OK; ++i)
            status = vescomm_broadcast(comm, data.data(), 10, VESCOMM_F32, root, nullptr, nullptr,
                                       nullptr);
        expect_mismatch(status, {"rank 2", "broadcast"});
    });
}

// Nor does it compare its call with ranks of other nodes, which may not have made theirs: the next
// call on arrays does.
TEST(MismatchedArrayCalls, DifferentRootsBetweenNodesAreReportedByTheNextCall) {
    for (const auto &nodes : {std::vector{0, 1}, {0, 1, 2}, {0, 0, 1, 1}})
        for (const auto &setup : setups_on_nodes(nodes)) {
            SCOPED_TRACE(name_of(setup));
            run_array_ranks(setup, [&](vescomm_comm_t *comm) {
                Floats data(10, 1);
                vescomm_status_t status =
                    vescomm_broadcast(comm, data.data(), 10, VESCOMM_F32, comm->value->rank(),
                                      nullptr, nullptr, nullptr);
                if (status == VESCOMM_OK) status = sum(comm, data);
                expect_mismatch(status, {"rank "});
            });
        }
}

// A sender that waits for nobody would be further ahead than ranks remember calls.
TEST(MismatchedArrayCalls, AreReportedToASenderThatIsFarAhead) {
    for (const auto &setup : setups_on_nodes({0, 1})) {
        SCOPED_TRACE(name_of(setup));
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            const std::vector<std::int64_t> counts(2, 10);
            Floats source(20, 1), output(10), data(1 << 20, 1);
            vescomm_status_t status = VESCOMM_OK;
            for (int i = 0; comm->value->rank() == 0 && i < 200 && status == VESCOMM_OK; ++i)
                status = vescomm_scatter_v(comm, source.data(), output.data(), counts.data(),
                                           nullptr, VESCOMM_F32, 0, nullptr, nullptr, nullptr);
            if (status == VESCOMM_OK) status = sum(comm, data);
            expect_mismatch(status, {"rank 0", "rank 1"});
        });
    }
}

TEST(MismatchedArrayCalls, AreReportedByRequestTest) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        Floats data(11, 1);
        vescomm_request_t *request = nullptr;
        vescomm_status_t status =
            vescomm_all_reduce(comm, data.data(), data.data(), 10 + comm->value->rank(),
                               VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr, &request);
        if (status == VESCOMM_OK) do
                status = vescomm_request_test(request);
            while (status == VESCOMM_IN_PROGRESS);
        expect_mismatch(status, {"rank 0", "rank 1"});
        check(vescomm_request_free(request));
    });
}

// Ranks 0 and 2 forward data of other nodes to their local peers 1 and 3. A peer that makes another
// call must not accept it.
TEST(MismatchedArrayCalls, AreReportedToReadersOfForwardedData) {
    for (const auto &setup : setups_on_nodes({0, 0, 1, 1})) {
        for (const char *algorithm : {"staged", "bruck"}) {
            SCOPED_TRACE(testing::Message() << algorithm << " on " << name_of(setup));
            std::barrier meeting(4);
            run_array_ranks(setup, [&](vescomm_comm_t *comm) {
                const int rank = comm->value->rank();
                const bool odd = rank >= 2;
                const std::vector<std::int64_t> counts(4, 100);
                Floats data(100, 1), all(400);
                auto options = vescomm_call_options_init();
                options.algorithm = algorithm;
                vescomm_request_t *request = nullptr;
                vescomm_status_t status = VESCOMM_OK;
                const auto start = [&] {
                    status = vescomm_all_gather_v(comm, data.data(), all.data(), counts.data(),
                                                  nullptr, odd ? VESCOMM_I32 : VESCOMM_F32,
                                                  &options, nullptr, &request);
                };
                // The forwarding ranks have all data of other nodes before their local peers start.
                if (rank % 2 == 0) start();
                for (int i = 0; i < 10'000; ++i) vescomm_comm_progress(comm);
                meeting.arrive_and_wait();
                if (rank % 2 != 0) start();
                if (status == VESCOMM_OK) status = vescomm_request_wait(request);
                expect_mismatch(status, {"all_gather_v of f32", "all_gather_v of i32"});
                check(vescomm_request_free(request));
            });
        }
    }
}

// A rank that waits for no other can be many calls ahead of the ranks that wait for it.
TEST(MismatchedArrayCalls, AreReportedWhenOneRankIsManyCallsAhead) {
    for (const auto &setup : setups_on_nodes({0, 1})) {
        SCOPED_TRACE(name_of(setup));
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            const bool ahead = comm->value->rank() == 1;
            const std::vector<std::int64_t> counts = {5, 0};
            Floats data(10, 1), all(10);
            vescomm_status_t status = VESCOMM_OK;
            // Rank 1 has nothing to send: it is at the all_reduce while rank 0 is at its first
            // call.
            for (int i = 0; i < 9 && ahead && status == VESCOMM_OK; ++i)
                status = vescomm_gather_v(comm, data.data(), all.data(), counts.data(), nullptr,
                                          VESCOMM_F32, 0, nullptr, nullptr, nullptr);
            if (status == VESCOMM_OK) status = sum(comm, data);
            expect_mismatch(status, {"rank 0", "rank 1", "all_reduce", "gather_v"});
        });
    }
}

// The signature of a later call does not overwrite the signature of an earlier one.
TEST(MismatchedArrayCalls, AreReportedWhenThePeerIsInALaterCall) {
    for (testing_support::TestSetup setup : setups_on_nodes({0, 1})) {
        if (setup.kind == Kind::loopback) continue;
        SCOPED_TRACE(name_of(setup) + " " + setup.config.progress);
        std::barrier meeting(2);
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            const bool is_root = comm->value->rank() == 1;
            std::vector<Floats> data(5, Floats(10, 1));
            std::vector<vescomm_request_t *> requests(5);
            vescomm_status_t status = VESCOMM_OK;
            const auto start = [&](std::size_t i, vescomm_type_t type) {
                if (status == VESCOMM_OK)
                    status = vescomm_broadcast(comm, data[i].data(), 10, type, 1, nullptr, nullptr,
                                               &requests[i]);
            };
            const auto wait = [&](vescomm_request_t *request) {
                if (status == VESCOMM_OK) status = vescomm_request_wait(request);
            };
            // Rank 0 starts four broadcasts, and then makes no calls for a while.
            if (is_root) meeting.arrive_and_wait();
            for (std::size_t i = 0; i < 4; ++i)
                start(i, is_root && i == 0 ? VESCOMM_I32 : VESCOMM_F32);
            if (!is_root) meeting.arrive_and_wait();
            if (!is_root) meeting.arrive_and_wait();
            // Rank 1 completes all four and reuses the slot of the first for a fifth. It tests the
            // fifth for longer than a sleep, so it advertises its signature.
            for (std::size_t i = 0; i < 4 && is_root; ++i) wait(requests[i]);
            if (is_root) {
                start(4, VESCOMM_F32);
                const auto end = Clock::now() + std::chrono::milliseconds(200);
                while (status == VESCOMM_OK && Clock::now() < end)
                    if (vescomm_request_test(requests[4]) != VESCOMM_IN_PROGRESS) break;
                meeting.arrive_and_wait();
            }
            for (vescomm_request_t *request : requests)
                if (request != nullptr) wait(request);
            for (int i = 0; i < 10 && status == VESCOMM_OK; ++i) status = sum(comm, data[0]);
            expect_mismatch(status, {"broadcast of f32", "broadcast of i32"});
            for (vescomm_request_t *request : requests)
                if (request != nullptr) check(vescomm_request_free(request));
        });
    }
}

TEST(MismatchedArrayCalls, DifferentAlgorithmsAreReported) {
    run_array_ranks(hurried(two), [](vescomm_comm_t *comm) {
        Floats data(1'000, 1);
        auto options = vescomm_call_options_init();
        options.algorithm = comm->value->rank() == 0 ? "flat" : "two_phase";
        expect_mismatch(vescomm_all_reduce(comm, data.data(), data.data(), 1'000, VESCOMM_F32,
                                           VESCOMM_SUM, &options, nullptr, nullptr),
                        {"rank 0", "rank 1"});
    });
}

TEST(MismatchedArrayCalls, AnyDifferentArgumentIsReported) {
#if VESCOMM_THREAD_SANITIZER
    GTEST_SKIP() << "until the mismatch is detected, ranks read staging memory that others write";
#endif
    using Call = std::function<vescomm_status_t(vescomm_comm_t *, Floats &)>;
    const std::vector<std::int64_t> counts = {3, 4, 5}, others = {3, 5, 4};
    const auto all_reduce = [](std::int64_t count, vescomm_type_t type, double factor) {
        return [=](vescomm_comm_t *comm, Floats &data) {
            auto options = vescomm_call_options_init();
            options.factor = factor;
            return vescomm_all_reduce(comm, data.data(), data.data(), count, type,
                                      factor == 0 ? VESCOMM_SUM : VESCOMM_PREMULTIPLIED_SUM,
                                      &options, nullptr, nullptr);
        };
    };
    const auto reduce = [](int root) {
        return [=](vescomm_comm_t *comm, Floats &data) {
            return vescomm_reduce(comm, data.data(), data.data(), 10, VESCOMM_F32, VESCOMM_SUM,
                                  root, nullptr, nullptr, nullptr);
        };
    };
    const auto gather = [&](const std::vector<std::int64_t> &counts) {
        return [&](vescomm_comm_t *comm, Floats &data) {
            Floats all(100);
            return vescomm_all_gather_v(comm, data.data(), all.data(), counts.data(), nullptr,
                                        VESCOMM_F32, nullptr, nullptr, nullptr);
        };
    };
    const Call group = [](vescomm_comm_t *comm, Floats &data) {
        check(vescomm_group_begin(comm));
        check(sum(comm, data));
        check(sum(comm, data));
        return vescomm_group_end(comm, nullptr);
    };
    const std::pair<Call, Call> pairs[] = {
        {all_reduce(10, VESCOMM_F32, 0), all_reduce(11, VESCOMM_F32, 0)},
        {all_reduce(10, VESCOMM_F32, 0), all_reduce(10, VESCOMM_I32, 0)},
        {all_reduce(10, VESCOMM_F32, 2), all_reduce(10, VESCOMM_F32, 3)},
        {all_reduce(10, VESCOMM_F32, 0), reduce(0)},
        {all_reduce(10, VESCOMM_F32, 0), gather(counts)},
        {reduce(0), reduce(1)},
        {gather(counts), gather(others)},
        {all_reduce(10, VESCOMM_F32, 0), group},
    };
    for (const auto &setup : {hurried(three), hurried(apart)}) {
        for (std::size_t i = 0; i < std::size(pairs); ++i) {
            SCOPED_TRACE(testing::Message() << "pair " << i << " on " << name_of(setup));
            run_array_ranks(setup, [&](vescomm_comm_t *comm) {
                const bool odd = comm->value->rank() == 2;
                Floats data(200, 1);
                vescomm_status_t status = VESCOMM_OK;
                // Ranks that only send may be ahead by the number of slots of the staging buffer.
                for (int k = 0; k < 10 && status == VESCOMM_OK; ++k)
                    status = (odd ? pairs[i].second : pairs[i].first)(comm, data);
                expect_mismatch(status, {"rank 2"});
            });
        }
    }
}

TEST(MismatchedArrayCalls, DifferentCountsAreReported) {
    // The counts that one rank sends and another expects: more, fewer, and another number of
    // chunks. Some of the data is forwarded by a local peer of the receiver.
    const auto pairs_of_two = hurried({Kind::loopback, {0, 0, 1, 1}});
    const std::tuple<testing_support::TestSetup, int, int> between[] = {
        {hurried(two), 0, 1},
        {hurried({Kind::loopback, {0, 1}}), 0, 1},
        {pairs_of_two, 1, 2},
        {pairs_of_two, 2, 0}};
    const std::pair<std::int64_t, std::int64_t> pairs[] = {{5, 6},       {6, 5},       {0, 5},
                                                           {300'000, 1}, {1, 300'000}, {5, 0}};
    for (const auto &[sent, expected] : pairs) {
        for (const auto &[setup, from, to] : between) {
            SCOPED_TRACE(testing::Message()
                         << sent << " sent, " << expected << " expected, " << name_of(setup)
                         << ", ranks " << from << " and " << to);
            run_array_ranks(setup, [&, sent = sent, expected = expected, from = from,
                                    to = to](vescomm_comm_t *comm) {
                const int rank = comm->value->rank();
                const auto ranks = static_cast<std::size_t>(comm->value->ranks());
                std::vector<std::int64_t> sends(ranks, 2), receives(ranks, 2);
                if (rank == from) sends[static_cast<std::size_t>(to)] = sent;
                if (rank == to) receives[static_cast<std::size_t>(from)] = expected;
                Floats source(std::reduce(sends.begin(), sends.end(), std::size_t{0}), 1);
                // The last 64 elements are a guard that is never written.
                Floats output(std::reduce(receives.begin(), receives.end(), std::size_t{64}), 7);
                vescomm_status_t status = VESCOMM_OK;
                for (int k = 0; k < 10 && status == VESCOMM_OK; ++k)
                    status = vescomm_all_to_all_v(comm, source.data(), sends.data(), nullptr,
                                                  output.data(), receives.data(), nullptr,
                                                  VESCOMM_F32, nullptr, nullptr, nullptr);
                expect_mismatch(status, {"rank " + std::to_string(from),
                                         "rank " + std::to_string(to), "all_to_all_v"});
                EXPECT_TRUE(std::all_of(output.end() - 64, output.end(),
                                        [](float guard) { return guard == 7; }));
            });
        }
    }
}

// ---- requests ----

TEST(ArrayRequests, ManyCanBeInProgress) {
    for (const auto &setup : {three, apart}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const int rank = comm->value->rank();
            std::vector<Floats> data(200);
            std::vector<vescomm_request_t *> requests(data.size());
            for (std::size_t i = 0; i < data.size(); ++i) {
                data[i].assign(1 + i * 7 % 50, static_cast<float>(i));
                check(sum(comm, data[i], &requests[i]));
            }
            // Rank 1 waits in order, the others in reverse order.
            for (std::size_t i = 0; i < data.size(); ++i)
                check(vescomm_request_wait(requests[rank == 1 ? i : data.size() - 1 - i]));
            for (std::size_t i = 0; i < data.size(); ++i) {
                EXPECT_EQ(data[i], Floats(data[i].size(), static_cast<float>(3 * i)));
                check(vescomm_request_free(requests[i]));
            }
            expect_in_step(comm);
        });
    }
}

TEST(ArrayRequests, OutliveTheirCommunicator) {
    run_ranks(two, [](const std::shared_ptr<Communicator> &comm) {
        vescomm_comm_t *handle = testing_support::handle_of(comm).release();
        Floats data(10, 1), kept(10, 1);
        vescomm_request_t *request = nullptr, *other = nullptr;
        check(sum(handle, data, &request));
        check(vescomm_request_wait(request));
        check(sum(handle, kept, &other));
        check(vescomm_request_wait(other));
        check(vescomm_request_free(other));  // the communicator keeps its schedule
        check(vescomm_comm_free(handle));
        EXPECT_REFUSED(vescomm_request_start(request, nullptr), "finalized");
        EXPECT_EQ(vescomm_request_test(request), VESCOMM_OK);
        check(vescomm_request_free(request));
    });
}

TEST(ArrayRequests, EveryCallOnAnAbortedCommunicatorReturnsAborted) {
    std::barrier meeting(2);
    run_array_ranks(two, [&](vescomm_comm_t *comm) {
        Floats data(10, 1);
        vescomm_request_t *request = nullptr;
        if (comm->value->rank() == 0) {
            check(sum(comm, data, &request));
            check(vescomm_comm_abort(comm, "enough"));
            EXPECT_EQ(vescomm_request_wait(request), VESCOMM_ERROR_ABORTED);
            EXPECT_EQ(vescomm_request_start(request, nullptr), VESCOMM_ERROR_ABORTED);
            check(vescomm_request_free(request));
            for (int i = 0; i < 3; ++i) {
                EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_ABORTED) << vescomm_get_last_error();
                EXPECT_EQ(sum(comm, data, &request), VESCOMM_ERROR_ABORTED);
            }
            meeting.arrive_and_wait();
        } else {
            meeting.arrive_and_wait();
            EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_ABORTED) << vescomm_get_last_error();
        }
    });
}

// A rank that destroys a running request fails the call of all other ranks at once.
TEST(ArrayRequests, DestroyingARunningRequestBreaksTheCommunicator) {
    std::barrier meeting(2);
    run_array_ranks(two, [&](vescomm_comm_t *comm) {
        Floats data(10, 1);
        if (comm->value->rank() == 0) {
            vescomm_request_t *request = nullptr;
            check(sum(comm, data, &request));
            delete request;
        }
        meeting.arrive_and_wait();
        EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_ABORTED);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("rank 0 gave up all_reduce of 10 f32"),
                  std::string::npos)
            << vescomm_get_last_error();
    });
}

}  // namespace
}  // namespace vescomm::internal
