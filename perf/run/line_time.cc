// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/line_time.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace vescomm::perf {
namespace {

constexpr int batches = 5;
constexpr std::uint32_t trips = 200;  // there and back, in a batch
constexpr std::size_t max_cores = 16;

std::vector<int> first_cores(int ranks) {
    cpu_set_t set;
    std::vector<int> cores;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    const std::size_t wanted = std::min(max_cores, static_cast<std::size_t>(ranks));
    for (int core = 0; core < CPU_SETSIZE && cores.size() < wanted; ++core)
        if (CPU_ISSET(core, &set)) cores.push_back(core);
    return cores;
}

bool bind_this_thread(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

struct Line {
    alignas(64) std::atomic<std::uint32_t> value{0};  // odd: on the way back
    std::atomic<bool> unbound{false};
};

// Waits until `line` has this value. A spinning thread may share its core with others.
void await(const Line &line, std::uint32_t value) {
    int spins = 0;
    while (line.value.load(std::memory_order_acquire) != value && !line.unbound.load())
        if (++spins % 100'000 == 0) std::this_thread::yield();
}

// The best batch: a batch in which another thread took a core says nothing about lines.
double exchange_ns(int first, int second) {
    constexpr std::uint32_t exchanges = batches * trips;
    Line line;
    double best = -1;
    std::thread there([&] {
        if (!bind_this_thread(second)) line.unbound = true;
        for (std::uint32_t i = 0; i < exchanges && !line.unbound; ++i) {
            await(line, 2 * i + 1);
            line.value.store(2 * i + 2, std::memory_order_release);
        }
    });
    std::thread here([&] {
        if (!bind_this_thread(first)) line.unbound = true;
        for (int batch = 0; batch < batches && !line.unbound; ++batch) {
            const auto begin = std::chrono::steady_clock::now();
            for (std::uint32_t i = 0; i < trips; ++i) {
                const std::uint32_t done = (static_cast<std::uint32_t>(batch) * trips + i) * 2;
                line.value.store(done + 1, std::memory_order_release);
                await(line, done + 2);
            }
            const std::chrono::duration<double, std::nano> took =
                std::chrono::steady_clock::now() - begin;
            const double one_way = took.count() / (2.0 * trips);
            best = best < 0 ? one_way : std::min(best, one_way);
        }
    });
    here.join();
    there.join();
    return line.unbound ? -1 : best;
}

}  // namespace

double measure_line_ns(int ranks) {
    const std::vector<int> cores = first_cores(ranks);
    double farthest = -1;
    for (std::size_t i = 1; i < cores.size(); ++i)
        farthest = std::max(farthest, exchange_ns(cores[0], cores[i]));
    return farthest;
}

}  // namespace vescomm::perf
