// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, but outside the timed interval.
#include "perf/worker/gate.h"

#include <sched.h>

#include "perf/worker/cores.h"
#include "perf/worker/shared_file.h"

namespace vescomm::perf {

void Backoff::pause() {
    if (spins_ > 0) {
        --spins_;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else {
        sched_yield();
    }
}

Gate::Gate(const std::string &file, int ranks)
    : shared_(static_cast<Shared *>(map_shared(file, sizeof(Shared)))),
      ranks_(static_cast<std::uint32_t>(ranks)),
      crowded_(more_ranks_than_cores(ranks)) {}

Gate::~Gate() {
    unmap_shared(shared_, sizeof(Shared));
}

void Gate::meet(const std::function<void()> &meanwhile) {
    const std::uint32_t round = shared_->round.load(std::memory_order_acquire);
    if (shared_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
        shared_->arrived.store(0, std::memory_order_relaxed);
        shared_->round.store(round + 1, std::memory_order_release);
        return;
    }
    Backoff backoff(crowded_);
    constexpr int between = 64;
    for (int pauses = 1; shared_->round.load(std::memory_order_acquire) == round; ++pauses) {
        backoff.pause();
        if (pauses % between == 0) meanwhile();
    }
}

}  // namespace vescomm::perf
