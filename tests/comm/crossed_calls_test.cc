// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks wait for one another in calls whose flags have nothing in common, such as a barrier and a
// sum: the error is that of different calls, on every rank, long before the deadline.
#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "support/array_calls.h"

namespace vescomm::internal::testing_support {
namespace {

using Call = std::function<vescomm_status_t(vescomm_comm_t *)>;

vescomm_status_t sum_of_ten(vescomm_comm_t *comm) {
    Floats data(10, 1);
    return sum(comm, data);
}

vescomm_status_t create_memory(vescomm_comm_t *comm) {
    vescomm_memory_t *memory = nullptr;
    vescomm_memory_options_t options = vescomm_memory_options_init();
    options.bytes = 4096;
    return vescomm_memory_create(comm, &options, &memory);
}

// One rank makes `call`, and the others `usual`. The errors contain each of `texts`.
void expect_mismatch(const TestSetup &setup, const Call &call, const Call &usual,
                     const std::vector<std::string> &texts) {
    for (const int odd : {0, setup.ranks() - 1}) {
        SCOPED_TRACE(name_of(setup) + ", another call on rank " + std::to_string(odd));
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            expect_in_step(comm);
            const bool usually = comm->value->rank() != odd;
            EXPECT_EQ((usually ? usual : call)(comm), VESCOMM_ERROR_MISMATCH);
            const std::string why = vescomm_get_last_error();
            for (const std::string &text : texts)
                EXPECT_NE(why.find(text), std::string::npos) << why;
            EXPECT_NE(why.find("rank " + std::to_string(odd) + " waits in"), std::string::npos)
                << why;
        });
    }
}

std::vector<TestSetup> setups() {
    return {two, three, {Kind::tcp, {0, 1}}, {Kind::tcp, {0, 0, 1, 1, 2}}};
}

TEST(CrossedCalls, OfABarrierAndASumAreAMismatch) {
    for (const TestSetup &setup : setups())
        expect_mismatch(setup, vescomm_barrier, sum_of_ten, {"barrier", "all_reduce"});
}

TEST(CrossedCalls, OfASumAndABarrierAreAMismatch) {
    for (const TestSetup &setup : setups())
        expect_mismatch(setup, sum_of_ten, vescomm_barrier, {"barrier", "all_reduce"});
}

TEST(CrossedCalls, OfABarrierAndACreationAreAMismatch) {
    for (const TestSetup &setup : setups())
        expect_mismatch(setup, vescomm_barrier, create_memory, {"barrier", "memory creation"});
}

TEST(CrossedCalls, OfASumAndACreationAreAMismatch) {
    for (const TestSetup &setup : setups())
        expect_mismatch(setup, sum_of_ten, create_memory, {"all_reduce", "memory creation"});
}

// Requests have different flags too.
TEST(CrossedCalls, OfTwoRequestsAreAMismatch) {
    const auto barrier_of = [](int odd_index) {
        return [odd_index](vescomm_comm_t *comm) {
            vescomm_request_t *requests[2] = {};
            for (auto &request : requests) check(vescomm_barrier_create(comm, nullptr, &request));
            const vescomm_status_t status = vescomm_request_start(requests[odd_index], nullptr);
            const vescomm_status_t end =
                status == VESCOMM_OK ? vescomm_request_wait(requests[odd_index]) : status;
            for (vescomm_request_t *request : requests) vescomm_request_free(request);
            return end;
        };
    };
    expect_mismatch(three, barrier_of(1), barrier_of(0), {"barrier"});
}

// A small buffer on each of these ranks, and a request for its sum.
struct SummedBuffer {
    explicit SummedBuffer(vescomm_comm_t *comm) {
        const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm->value->ranks()), 5);
        vescomm_layout_t *layout = nullptr;
        check(vescomm_layout_create_from_counts(counts.data(), counts.size(), &layout));
        check(vescomm_buffer_create(comm, layout, nullptr, &buffer));
        check(vescomm_layout_free(layout));
        check(vescomm_all_reduce_create(comm, buffer, nullptr, &request));
    }
    ~SummedBuffer() {
        vescomm_request_free(request);
        vescomm_buffer_free(buffer);
    }
    SummedBuffer(const SummedBuffer &) = delete;
    SummedBuffer &operator=(const SummedBuffer &) = delete;
    vescomm_status_t run() const {
        const vescomm_status_t status = vescomm_request_start(request, nullptr);
        return status == VESCOMM_OK ? vescomm_request_wait(request) : status;
    }

    vescomm_buffer_t *buffer = nullptr;
    vescomm_request_t *request = nullptr;
};

// They share the slots of the staging buffer, and differ in nothing but the buffer.
TEST(CrossedCalls, OfSmallSumsOfTwoBuffersAreAMismatch) {
    for (const TestSetup &setup : {two, three}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const SummedBuffer buffers[] = {SummedBuffer(comm), SummedBuffer(comm)};
            for (const SummedBuffer &each : buffers) check(each.run());
            expect_in_step(comm);
            EXPECT_EQ(buffers[comm->value->rank() == 1].run(), VESCOMM_ERROR_MISMATCH);
        });
    }
}

TEST(CrossedCalls, OfASmallSumOfABufferAndOneOfAnArrayAreAMismatch) {
    for (const TestSetup &setup : {two, three}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const SummedBuffer buffer(comm);
            Floats array(static_cast<std::size_t>(comm->value->ranks()) * 5, 1);
            check(buffer.run());
            check(sum(comm, array));
            expect_in_step(comm);
            EXPECT_EQ(comm->value->rank() == 1 ? sum(comm, array) : buffer.run(),
                      VESCOMM_ERROR_MISMATCH);
        });
    }
}

// Rank 0 has started two sums and waits in the second one, rank 1 waits in the first one: neither
// starts anything before the last rank comes. The order is the same on all ranks.
TEST(CrossedCalls, AreNotThoseOfRanksThatWaitForALateOne) {
    for (const TestSetup &setup : {three, {Kind::tcp, {0, 1, 2}}}) {
        SCOPED_TRACE(name_of(setup));
        std::array<std::atomic<Communicator *>, 3> comms{};
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            expect_in_step(comm);
            const int rank = comm->value->rank();
            // Enough for several questions.
            constexpr std::uint64_t many_sleeps = 8;
            const auto waits = [&](std::size_t other) {
                return comms[other] && comms[other].load()->counters().sleeps > many_sleeps;
            };
            comms[static_cast<std::size_t>(rank)] = &*comm->value;
            while (rank == 2 && !(waits(0) && waits(1))) std::this_thread::yield();
            vescomm_request_t *requests[2] = {};
            Floats arrays[2] = {Floats(10, 1), Floats(10, 2)};
            const auto start = [&](int i) { check(sum(comm, arrays[i], &requests[i])); };
            const auto wait = [&](int i) { check(vescomm_request_wait(requests[i])); };
            start(0);
            if (rank == 0) start(1);
            wait(rank == 0 ? 1 : 0);
            if (rank != 0) start(1);
            wait(rank == 0 ? 0 : 1);
            EXPECT_EQ(arrays[0], Floats(10, 3));
            EXPECT_EQ(arrays[1], Floats(10, 6));
            for (vescomm_request_t *request : requests) vescomm_request_free(request);
        });
    }
}

}  // namespace
}  // namespace vescomm::internal::testing_support
