// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm_malloc() and vescomm_mfree(), and which bytes of registered arrays move without a copy in
// the staging buffer. arrays_test.cc mixes registered and private arrays at random.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <thread>

#include "comm/split.h"
#include "support/array_ranks.h"
#include "support/registered_vector.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::handle_of;
using testing_support::Kind;
using testing_support::PoolAllocator;
using testing_support::RegisteredVector;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

const TestSetup two{Kind::node, {0, 0}, {}};
const TestSetup three{Kind::node, {0, 0, 0}, {}};

std::uint64_t registered_bytes(vescomm_comm_t *comm) {
    return comm->value->counters().bytes_registered;
}

RegisteredVector<float> vector_of(vescomm_comm_t *comm, std::int64_t count, float value) {
    return RegisteredVector<float>(static_cast<std::size_t>(count), value,
                                   PoolAllocator<float>(comm));
}

void *allocate(vescomm_comm_t *comm, std::uint64_t bytes) {
    void *data = nullptr;
    check(vescomm_malloc(comm, bytes, &data));
    return data;
}

constexpr std::int64_t many = 300'000;  // elements, several chunks

TEST(RegisteredArrays, AreReadInPlaceByAllRanksOfTheNode) {
    for (const TestSetup &setup : {two, three}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const int rank = comm->value->rank(), ranks = comm->value->ranks();
            const std::int64_t others = ranks - 1;
            const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), many);
            auto source = vector_of(comm, many * ranks, static_cast<float>(rank + 1));
            auto output = vector_of(comm, many * ranks, 0);
            const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
            std::uint64_t before = 0;
            const auto expect_read = [&](const char *what, std::int64_t elements) {
                EXPECT_EQ(registered_bytes(comm) - before,
                          static_cast<std::uint64_t>(elements) * sizeof(float))
                    << what;
                before = registered_bytes(comm);
            };
            check(vescomm_all_gather_v(comm, source.data(), output.data(), counts.data(), nullptr,
                                       VESCOMM_F32, nullptr, nullptr, nullptr));
            for (int k = 0; k < ranks; ++k)
                EXPECT_EQ(output[static_cast<std::size_t>(many * k + many - 1)],
                          static_cast<float>(k + 1));
            expect_read("all_gather_v", many * others);
            check(vescomm_all_to_all(comm, source.data(), output.data(), many, VESCOMM_F32, nullptr,
                                     nullptr, nullptr));
            for (int k = 0; k < ranks; ++k)
                EXPECT_EQ(output[static_cast<std::size_t>(many * k)], static_cast<float>(k + 1));
            expect_read("all_to_all_v", many * others);
            check(vescomm_reduce_scatter(comm, source.data(), output.data(), many, VESCOMM_F32,
                                         VESCOMM_SUM, nullptr, nullptr, nullptr));
            EXPECT_EQ(std::ranges::count(std::span(output).first(many), sum), many);
            expect_read("reduce_scatter_v", many * others);
            check(vescomm_broadcast(comm, source.data(), many, VESCOMM_F32, 1, nullptr, nullptr,
                                    nullptr));
            EXPECT_EQ(source[many - 1], 2.0f);
            expect_read("broadcast", rank == 1 ? 0 : many);
        });
    }
}

// A rank may change its source as soon as its call has returned.
TEST(RegisteredArrays, AreReadBeforeTheCallOfTheirRankReturns) {
    for (const TestSetup &setup : {two, three}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const int rank = comm->value->rank(), ranks = comm->value->ranks();
            auto source = vector_of(comm, many, 0);
            auto output = vector_of(comm, many * ranks, 0);
            for (int call = 0; call < 30; ++call) {
                const std::int64_t count = call % 2 == 0 ? many : 20'000;
                std::ranges::fill(source, static_cast<float>(10 * call + rank));
                check(vescomm_all_gather(comm, source.data(), output.data(), count, VESCOMM_F32,
                                         nullptr, nullptr, nullptr));
                std::ranges::fill(source, -1.0f);
                for (int k = 0; k < ranks; ++k)
                    ASSERT_EQ(
                        std::count(output.begin() + count * k, output.begin() + count * (k + 1),
                                   static_cast<float>(10 * call + k)),
                        count);
            }
        });
    }
}

TEST(RegisteredArrays, AreExplained) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        for (const bool registered : {true, false}) {
            auto source = vector_of(registered ? comm : nullptr, many, 1);
            auto output = vector_of(nullptr, 2 * many, 0);
            vescomm_request_t *request = nullptr;
            check(vescomm_all_gather(comm, source.data(), output.data(), many, VESCOMM_F32, nullptr,
                                     nullptr, &request));
            const char *explained = nullptr;
            check(vescomm_request_explain(request, &explained));
            const std::string text = explained;
            EXPECT_NE(text.find(registered ? "source of this rank is registered"
                                           : "source of this rank is private"),
                      std::string::npos)
                << text;
            check(vescomm_request_wait(request));
            check(vescomm_request_free(request));
        }
    });
}

// Rank 0 has private arrays, rank 1 a registered source, rank 2 registered arrays.
TEST(RegisteredArrays, MixWithPrivateOnes) {
    run_array_ranks(three, [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        auto source = vector_of(rank == 0 ? nullptr : comm, many, static_cast<float>(rank + 1));
        auto output = vector_of(rank == 2 ? comm : nullptr, many, 0);
        check(vescomm_all_reduce(comm, source.data(), output.data(), many, VESCOMM_F32, VESCOMM_SUM,
                                 nullptr, nullptr, nullptr));
        EXPECT_EQ(std::ranges::count(output, 6.0f), many);
        EXPECT_GT(registered_bytes(comm), 0u);
    });
}

TEST(RegisteredArrays, OfAParentAreRegisteredInItsChildren) {
    run_array_ranks(three, [](vescomm_comm_t *comm) {
        auto child = split(*comm->value, comm->value->rank() == 1 ? 1 : 0, 0, {});
        auto handle = handle_of(child);
        auto source = vector_of(comm, many, static_cast<float>(comm->value->rank()));
        auto output = vector_of(handle.get(), many * child->ranks(), 0);
        check(vescomm_all_gather(handle.get(), source.data(), output.data(), many, VESCOMM_F32,
                                 nullptr, nullptr, nullptr));
        if (child->ranks() == 2) {
            EXPECT_EQ(registered_bytes(handle.get()), many * sizeof(float));
            EXPECT_EQ(output[0], 0.0f);
            EXPECT_EQ(output[many], 2.0f);
        }
        child->finalize();
    });
}

TEST(RegisteredArrays, OfDifferentCallsAreNotRead) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        auto source = vector_of(comm, many, 1), output = vector_of(comm, 2 * many, 7);
        const std::int64_t count = comm->value->rank() == 0 ? many : many - 1;
        vescomm_status_t status = VESCOMM_OK;
        for (int call = 0; call < 10 && status == VESCOMM_OK; ++call)
            status = vescomm_all_gather(comm, source.data(), output.data(), count, VESCOMM_F32,
                                        nullptr, nullptr, nullptr);
        EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
    });
}

TEST(Malloc, GivesZeroedPagesThatCanBeFreedAndUsedAgain) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        void *first = allocate(comm, 10'000);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 4096, 0u);
        auto *bytes = static_cast<unsigned char *>(first);
        EXPECT_TRUE(std::all_of(bytes, bytes + 10'000, [](int byte) { return byte == 0; }));
        std::fill_n(bytes, 10'000, static_cast<unsigned char>(9));
        void *second = allocate(comm, 0);
        EXPECT_NE(first, second);
        check(vescomm_mfree(comm, first));
        EXPECT_EQ(allocate(comm, 12'288), first);
        EXPECT_TRUE(std::all_of(bytes, bytes + 12'288, [](int byte) { return byte == 0; }));
        check(vescomm_mfree(comm, first));
        check(vescomm_mfree(comm, second));
        check(vescomm_mfree(comm, nullptr));
    });
}

TEST(Malloc, PagesThatTheProgramHasLockedAreZeroedToo) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        auto *bytes = static_cast<unsigned char *>(allocate(comm, 8192));
        if (mlock(bytes, 8192) != 0) GTEST_SKIP() << "memory cannot be locked";
        std::fill_n(bytes, 8192, static_cast<unsigned char>(9));
        check(vescomm_mfree(comm, bytes));
        EXPECT_EQ(allocate(comm, 8192), bytes);
        EXPECT_TRUE(std::all_of(bytes, bytes + 8192, [](int byte) { return byte == 0; }));
        check(vescomm_mfree(comm, bytes));
    });
}

TEST(Malloc, RefusesWhatItCannotDo) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        void *data = nullptr;
        const auto expect = [](vescomm_status_t status, vescomm_status_t wanted,
                               const std::string &text) {
            EXPECT_EQ(status, wanted);
            EXPECT_NE(std::string(vescomm_get_last_error()).find(text), std::string::npos)
                << vescomm_get_last_error();
        };
        expect(vescomm_malloc(comm, 100, nullptr), VESCOMM_ERROR_INVALID_ARGUMENT, "pointer");
        expect(vescomm_malloc(nullptr, 100, &data), VESCOMM_ERROR_INVALID_ARGUMENT, "comm");
        expect(vescomm_malloc(comm, 100'000'000, &data), VESCOMM_ERROR_OUT_OF_MEMORY,
               "VESCOMM_MALLOC_BYTES");
        expect(vescomm_malloc(comm, UINT64_MAX, &data), VESCOMM_ERROR_OUT_OF_MEMORY,
               "VESCOMM_MALLOC_BYTES");
        EXPECT_EQ(data, nullptr);
        expect(vescomm_mfree(comm, &data), VESCOMM_ERROR_INVALID_ARGUMENT, "freed once");
        data = allocate(comm, 8192);
        expect(vescomm_mfree(comm, static_cast<char *>(data) + 4096),
               VESCOMM_ERROR_INVALID_ARGUMENT, "begins at");
        check(vescomm_mfree(comm, data));
        expect(vescomm_mfree(comm, data), VESCOMM_ERROR_INVALID_ARGUMENT, "freed once");
    });
}

TEST(Malloc, WithoutAPoolTheMemoryIsPrivate) {
    TestSetup setup = two;
    setup.config.malloc_bytes = "0";
    run_array_ranks(setup, [](vescomm_comm_t *comm) {
        auto source = vector_of(comm, many, 3), output = vector_of(comm, 2 * many, 0);
        check(vescomm_all_gather(comm, source.data(), output.data(), many, VESCOMM_F32, nullptr,
                                 nullptr, nullptr));
        EXPECT_EQ(output[2 * many - 1], 3.0f);
        EXPECT_EQ(registered_bytes(comm), 0u);
        void *data = allocate(comm, 100);
        check(vescomm_mfree(comm, data));
        EXPECT_EQ(vescomm_mfree(comm, data), VESCOMM_ERROR_INVALID_ARGUMENT);
    });
}

TEST(Malloc, IsSafeInThreadsThatAllocateAndFree) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        std::vector<std::thread> threads;
        for (int thread = 0; thread < 4; ++thread)
            threads.emplace_back([comm, thread] {
                for (int i = 0; i < 100; ++i) {
                    const auto bytes =
                        static_cast<std::uint64_t>(4096 * (1 + (i * 7 + thread) % 9));
                    auto *data = static_cast<unsigned char *>(allocate(comm, bytes));
                    EXPECT_EQ(data[0] + data[bytes - 1], 0);
                    std::fill_n(data, bytes, static_cast<unsigned char>(thread + 1));
                    EXPECT_EQ(data[bytes / 2], thread + 1);
                    check(vescomm_mfree(comm, data));
                }
            });
        for (std::thread &thread : threads) thread.join();
    });
}

}  // namespace
}  // namespace vescomm::internal
