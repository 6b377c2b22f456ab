// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Creates, uses and frees many communicators of many ranks on one node, with a small limit of
// descriptors for each process.
//
//     VESCOMM_TEST_REPETITIONS    communicators
//     VESCOMM_TEST_RANKS          ranks
//     VESCOMM_TEST_DESCRIPTORS    limit of open files, as set by `ulimit -n`
#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;
using vescomm::testing_support::number_in;

int open_descriptors() {
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir("/proc/self/fd"), closedir);
    int count = -3;  // ".", ".." and the folder itself
    while (readdir(folder.get()) != nullptr) ++count;
    return count;
}

struct Shared {
    std::atomic<int> max_descriptors;  // largest number in any process
};

TEST(ManyCommunicators, NeedFewDescriptors) {
    const int count = repetitions(20);
    Job job{number_in("VESCOMM_TEST_RANKS", 8), 0};
    job.per_node = job.ranks;
    job.timeout_seconds = 300;
    job.max_seconds = 1500;
    const auto limit = static_cast<rlim_t>(number_in("VESCOMM_TEST_DESCRIPTORS", 48));
    Shared *shared = make_shared_page<Shared>();
    const auto begin = std::chrono::steady_clock::now();
    run(job, [&](int rank) {
        const rlimit few{limit, limit};
        expect(setrlimit(RLIMIT_NOFILE, &few) == 0, "a limit of descriptors");
        vescomm_comm_t *all = nullptr;
        require(job.create(rank, nullptr, &all), "create");
        struct Made {
            vescomm_comm_t *comm;
            int sum;  // over its members, of their ranks in the job
        };
        std::vector<Made> made(static_cast<std::size_t>(count) - 1);
        for (std::size_t i = 0; i < made.size(); ++i) {
            // Members: all ranks, a half of them, or every third one.
            const int parts = static_cast<int>(i % 3) + 1;
            const int color = parts == 2 ? rank / ((job.ranks + 1) / 2) : rank % parts;
            if (parts == 1) require(vescomm_comm_dup(all, nullptr, &made[i].comm), "dup");
            else require(vescomm_comm_split(all, color, 0, nullptr, &made[i].comm), "split");
            for (int other = 0; other < job.ranks; ++other) {
                const int its = parts == 2 ? other / ((job.ranks + 1) / 2) : other % parts;
                if (its == color) made[i].sum += other;
            }
        }
        const int open = open_descriptors();
        int max = shared->max_descriptors;
        while (max < open && !shared->max_descriptors.compare_exchange_weak(max, open)) {
        }
        for (const Made &each : made)
            expect_sum(each.comm, static_cast<float>(rank), static_cast<float>(each.sum), 10);
        expect_sum(all, 1, static_cast<float>(job.ranks));
        for (const Made &each : made) require(vescomm_comm_free(each.comm), "free");
        expect_sum(all, 2, static_cast<float>(2 * job.ranks));
        require(vescomm_comm_free(all), "free");
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LE(static_cast<rlim_t>(shared->max_descriptors), limit);
    std::printf("%d communicators of %d ranks: at most %d descriptors in a process, %.1f s\n",
                count, job.ranks, shared->max_descriptors.load(), took.count());
    munmap(shared, sizeof *shared);
}

}  // namespace
