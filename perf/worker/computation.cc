// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, in run().
#include "perf/worker/computation.h"

#include <algorithm>
#include <chrono>

namespace vescomm::perf {
namespace {

// Every step depends on the previous one; no step accesses memory.
std::uint64_t work(std::uint64_t state, std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX generator
        asm volatile("" : "+r"(state));
    }
    return state;
}

}  // namespace

void Computation::run(double us) {
    if (steps_in_us_ == 0) calibrate();
    state_ = work(state_, static_cast<std::uint64_t>(us * steps_in_us_));
}

// Takes the fastest of several runs, which is undisturbed.
void Computation::calibrate() {
    using Clock = std::chrono::steady_clock;
    constexpr std::uint64_t steps = 100'000;
    for (int i = 0; i < 20; ++i) {
        const Clock::time_point begin = Clock::now();
        state_ = work(state_, steps);
        const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
        steps_in_us_ = std::max(steps_in_us_, static_cast<double>(steps) / time.count());
    }
}

}  // namespace vescomm::perf
