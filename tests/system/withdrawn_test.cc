// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank gives up in a call, and its program uses its array again, while another rank of the node
// is stopped in the middle of reading that array. The other rank must not return a sum of what it
// reads afterwards.
//
//     VESCOMM_TEST_REPETITIONS    trials
#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

constexpr std::int64_t count =
    16'000;  // one chunk: the last flag of a call comes before the data is read
constexpr int max_calls = 1'000'000;

struct Shared {
    std::atomic<pid_t> reader{0};
    std::atomic<int> calls{0};  // of the reader
};

bool is_stopped(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name = text.rfind(") ");
    return name != std::string::npos && text[name + 2] == 'T';
}

vescomm_status_t sum(vescomm_comm_t *comm, const float *source, float *sums) {
    return vescomm_all_reduce(comm, source, sums, count, VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr,
                              nullptr);
}

// Rank 0. Its wait is ended early once the reader has stopped.
void give_up(vescomm_comm_t *comm, Shared *shared, unsigned seed) {
    void *memory = nullptr;
    require(vescomm_malloc(comm, count * sizeof(float), &memory), "malloc");
    auto *source = static_cast<float *>(memory);
    std::fill_n(source, count, 1.0f);
    std::vector<float> sums(count);
    require(vescomm_barrier(comm), "barrier");
    const auto end = [](void *context) {
        return is_stopped(static_cast<Shared *>(context)->reader) ? 1 : 0;
    };
    require(vescomm_set_interrupt(end, shared), "interrupt");
    std::thread stopper([&] {
        // Any moment of any call: the reader has made some calls, and then this thread spins.
        std::mt19937 random(seed);
        while (shared->calls < 50) sched_yield();
        for (unsigned spins = random() % 100'000; spins > 0; --spins) shared->calls.load();
        kill(shared->reader, SIGSTOP);
    });
    vescomm_status_t status = VESCOMM_OK;
    for (int i = 0; i < max_calls && status == VESCOMM_OK; ++i)
        status = sum(comm, source, sums.data());
    expect(status == VESCOMM_ERROR_ABORTED, "the status of a call that is ended early");
    std::fill_n(source, count, 1e6f);
    stopper.join();
    kill(shared->reader, SIGCONT);
}

// Rank 1, whose own array is private.
void read_and_check(vescomm_comm_t *comm, Shared *shared) {
    const std::vector<float> source(count, 2.0f);
    std::vector<float> sums(count);
    shared->reader = getpid();
    require(vescomm_barrier(comm), "barrier");
    vescomm_status_t status = VESCOMM_OK;
    while (status == VESCOMM_OK) {
        status = sum(comm, source.data(), sums.data());
        if (status == VESCOMM_OK)
            for (const float each : sums) expect(each == 3.0f, "a sum");
        ++shared->calls;
    }
    expect(std::string(vescomm_get_last_error()).find("rank 0") != std::string::npos,
           "the error names the rank that gave up");
}

TEST(Withdrawn, ArraysOfARankThatGaveUpAreNotSummed) {
    for (int trial = 0; trial < repetitions(10); ++trial) {
        SCOPED_TRACE(trial);
        Shared *shared = make_shared_page<Shared>();
        const Job job{2, 2};
        run(job, [&](int rank) {
            vescomm_comm_t *comm = nullptr;
            require(job.create(rank, nullptr, &comm), "create");
            if (rank == 0) give_up(comm, shared, static_cast<unsigned>(trial));
            else read_and_check(comm, shared);
            vescomm_comm_free(comm);
        });
        munmap(shared, sizeof *shared);
    }
}

}  // namespace
