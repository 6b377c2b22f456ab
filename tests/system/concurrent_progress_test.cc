// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Three threads of each rank use one communicator. The first makes all_reduces and verifies them,
// the second calls vescomm_comm_progress() all the time, and the third calls every query that
// vescomm.h declares thread-safe. Ranks are processes on emulated nodes.
//
// Two ranks have six such threads. Where these share two cores, a thread that never yields keeps
// the next all_reduce waiting for a time slice of milliseconds, and makes 50,000 calls meanwhile.
// Therefore the second thread yields after bursts of random length, and the first sees to it that
// the others make calls during its all_reduces.
// tests/conformance/threads_test.cc tests more functions, with threads as ranks.
//
//     VESCOMM_TEST_REPETITIONS    all_reduces of each test
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

constexpr std::int64_t elements = 4096;

// During this number of all_reduces, the other threads make at least these numbers of calls.
constexpr int all_reduces_per_pace = 8;
constexpr std::int64_t progress_per_pace = 64, queries_per_pace = 1;

// Calls of progress between two yields. The second thread uses up its time slice in one of
// `bursts_per_long_burst`, and the scheduler then interrupts it anywhere.
constexpr int max_burst = 64, long_burst = 20'000;
constexpr unsigned bursts_per_long_burst = 1024;

struct Shared {
    std::atomic<std::int64_t> verified;
    std::atomic<std::int64_t> wrong;
    std::atomic<std::int64_t> progressed;
    std::atomic<std::int64_t> queried;
};

// The second and the third thread of a rank.
struct Others {
    std::atomic<bool> done{false};
    std::atomic<std::int64_t> progressed{0};
    std::atomic<std::int64_t> queried{0};

    // Returns when the others have made their calls of one pace.
    void keep_pace() {
        const std::int64_t progress = progressed_ + progress_per_pace;
        const std::int64_t queries = queried_ + queries_per_pace;
        while (progressed < progress || queried < queries) std::this_thread::yield();
        progressed_ = progressed;
        queried_ = queried;
    }

private:
    std::int64_t progressed_ = 0, queried_ = 0;  // at the last pace
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

void work(vescomm_comm_t *comm, int calls, Others &others, Shared *shared) {
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
        if ((call + 1) % all_reduces_per_pace == 0) others.keep_pace();
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

void make_progress(vescomm_comm_t *comm, int rank, Others &others) {
    std::minstd_rand random(static_cast<unsigned>(rank + 1));
    while (!others.done) {
        const bool is_long = random() % bursts_per_long_burst == 0;
        const int burst = is_long ? long_burst : 1 + static_cast<int>(random() % max_burst);
        for (int i = 0; i < burst && !others.done; ++i, ++others.progressed)
            require(vescomm_comm_progress(comm), "progress");
        std::this_thread::yield();
    }
}

// Pins the first thread. Two of them on one core would each wait for the end of the other's time
// slice, while the second core runs only other threads.
void stay_on_core(int rank) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    int skip = rank % std::max(1, CPU_COUNT(&allowed));
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
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
        Others others;
        std::thread progress_thread([&] { make_progress(comm, rank, others); });
        std::thread query_thread([&] {
            auto last = vescomm_comm_counters_init();
            for (; !others.done; ++others.queried) {
                query(comm, last);
                std::this_thread::yield();
            }
        });
        stay_on_core(rank);
        work(comm, calls, others, shared);
        others.done = true;
        progress_thread.join();
        query_thread.join();
        shared->progressed += others.progressed;
        shared->queried += others.queried;
        require(vescomm_comm_free(comm), "free");
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(shared->verified, static_cast<std::int64_t>(ranks) * calls);
    EXPECT_EQ(shared->wrong, 0);
    const std::int64_t paces = static_cast<std::int64_t>(ranks) * (calls / all_reduces_per_pace);
    EXPECT_GE(shared->progressed, paces * progress_per_pace);
    EXPECT_GE(shared->queried, paces * queries_per_pace);
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
