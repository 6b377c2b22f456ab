// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Three threads of each rank use one communicator. The first makes all_reduces and verifies them,
// the second calls vescomm_comm_progress() continuously, and the third calls every query that
// vescomm.h declares thread-safe. Ranks are processes on emulated nodes.
// tests/conformance/threads_test.cc tests more functions, with threads as ranks.
//
//     VESCOMM_TEST_REPETITIONS    all_reduces of each test
#include <atomic>
#include <chrono>
#include <thread>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

constexpr std::int64_t elements = 4096;

struct Shared {
    std::atomic<std::int64_t> verified;
    std::atomic<std::int64_t> wrong;
    std::atomic<std::int64_t> progressed;
    std::atomic<std::int64_t> queried;
};

// Small whole numbers. Their sums are exact in f32.
float base(std::int64_t i) {
    return static_cast<float>((i * 7) % 251);
}

// Makes a blocking call, or a request with wait, or a request with test, depending on `call`.
void all_reduce(vescomm_comm_t *comm, std::vector<float> &data, int call) {
    vescomm_request_t *request = nullptr;
    require(vescomm_all_reduce(comm, data.data(), data.data(), elements, VESCOMM_F32, VESCOMM_SUM,
                               nullptr, nullptr, call % 3 == 0 ? nullptr : &request),
            "all_reduce");
    if (request == nullptr) return;
    if (call % 3 == 1) {
        require(vescomm_request_wait(request), "wait");
    } else {
        vescomm_status_t status = VESCOMM_IN_PROGRESS;
        while (status == VESCOMM_IN_PROGRESS) status = vescomm_request_test(request);
        require(status, "test");
    }
    require(vescomm_request_free(request), "free a request");
}

void work(vescomm_comm_t *comm, int calls, Shared *shared) {
    const int rank = rank_of(comm), ranks = ranks_of(comm);
    std::vector<float> given(elements), data(elements);
    for (std::int64_t i = 0; i < elements; ++i)
        given[static_cast<std::size_t>(i)] = base(i) + static_cast<float>(rank);
    const int sum_of_ranks = ranks * (ranks - 1) / 2;
    std::int64_t wrong = 0;
    for (int call = 0; call < calls; ++call) {
        const auto step = static_cast<float>(call % 1000);
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = given[i] + step;
        all_reduce(comm, data, call);
        const float more = static_cast<float>(sum_of_ranks - ranks * rank);
        std::int64_t different = 0;
        for (std::size_t i = 0; i < data.size(); ++i)
            different += data[i] != static_cast<float>(ranks) * (given[i] + step) + more;
        wrong += different != 0;
    }
    shared->verified += calls;
    shared->wrong += wrong;
}

void query(vescomm_comm_t *comm, vescomm_comm_counters_t &last) {
    auto info = vescomm_comm_info_init();
    require(vescomm_comm_get_info(comm, &info), "query");
    auto counters = vescomm_comm_counters_init();
    require(vescomm_comm_get_counters(comm, &counters), "count");
    expect(counters.operations >= last.operations && counters.bytes_sent >= last.bytes_sent,
           "counters that fall");
    last = counters;
    char text[8192];
    std::size_t size = 0;
    require(vescomm_comm_get_metrics(comm, text, sizeof text, &size), "metrics");
    expect(size > 1 && size < sizeof text, "the size of the metrics");
    const double now = vescomm_trace_get_seconds();
    require(vescomm_trace_add_span(comm, "a span", "a track", now, now), "span");
    expect(vescomm_comm_get_info(nullptr, &info) == VESCOMM_ERROR_INVALID_ARGUMENT, "a status");
}

// `progress`: the value of VESCOMM_PROGRESS.
void run_concurrently(int ranks, int per_node, const char *progress) {
    const int calls = repetitions(1000);
    Job job{ranks, per_node};
    job.max_seconds = 100 + static_cast<unsigned>(calls / 100);
    Shared *shared = make_shared_page<Shared>();
    const auto begin = std::chrono::steady_clock::now();
    run(job, [&](int rank) {
        setenv("VESCOMM_PROGRESS", progress, 1);
        vescomm_comm_t *comm = nullptr;
        require(job.create(rank, nullptr, &comm), "create");
        std::atomic<bool> done{false};
        std::thread progress_thread([&] {
            std::int64_t count = 0;
            for (; !done; ++count) require(vescomm_comm_progress(comm), "progress");
            shared->progressed += count;
        });
        std::thread query_thread([&] {
            auto last = vescomm_comm_counters_init();
            std::int64_t count = 0;
            for (; !done; ++count) {
                query(comm, last);
                std::this_thread::yield();
            }
            shared->queried += count;
        });
        work(comm, calls, shared);
        done = true;
        progress_thread.join();
        query_thread.join();
        require(vescomm_comm_free(comm), "free");
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(shared->verified, static_cast<std::int64_t>(ranks) * calls);
    EXPECT_EQ(shared->wrong, 0);
    EXPECT_GT(shared->progressed, 0);
    EXPECT_GT(shared->queried, 0);
    std::printf("%d all_reduces on %d ranks, %lld calls of progress, %lld queries, %.1f s\n", calls,
                ranks, static_cast<long long>(shared->progressed),
                static_cast<long long>(shared->queried), took.count());
    munmap(shared, sizeof *shared);
}

TEST(ConcurrentProgress, OneNodeWithoutProgressThread) {
    run_concurrently(2, 2, "inline");
}

TEST(ConcurrentProgress, OneNodeWithProgressThread) {
    run_concurrently(2, 2, "thread");
}

TEST(ConcurrentProgress, TwoNodesWithoutProgressThread) {
    run_concurrently(2, 1, "inline");
}

TEST(ConcurrentProgress, TwoNodesWithProgressThread) {
    run_concurrently(2, 1, "thread");
}

}  // namespace
