// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation.
#include "perf/implementations/limit_memory.h"

#include "perf/worker/cores.h"
#include "perf/worker/gate.h"
#include "perf/worker/shared_file.h"

namespace vescomm::perf {
namespace {

constexpr std::size_t page = 4096;

std::size_t round_up(std::size_t bytes) {
    return (bytes + page - 1) / page * page;
}

}  // namespace

std::size_t LimitMemory::bytes_for(int ranks, std::int64_t largest) {
    const auto parts = static_cast<std::size_t>(ranks);
    return round_up(parts * sizeof(Counters)) +
           (parts + 1) * round_up(static_cast<std::size_t>(largest) + 1);
}

LimitMemory::LimitMemory(const Worker &worker)
    : rank_(worker.rank),
      ranks_(worker.ranks),
      crowded_(more_ranks_than_cores(worker.ranks)),
      bytes_(worker.shared_bytes),
      memory_(map_shared(worker.shared, worker.shared_bytes)),
      counters_(static_cast<Counters *>(memory_)) {
    const std::size_t before = round_up(static_cast<std::size_t>(ranks_) * sizeof(Counters));
    data_ = static_cast<std::byte *>(memory_) + before;
    region_bytes_ = (bytes_ - before) / static_cast<std::size_t>(ranks_ + 1) / page * page;
}

LimitMemory::~LimitMemory() {
    unmap_shared(memory_, bytes_);
}

void LimitMemory::await(int peer, std::uint64_t step) const {
    Backoff backoff(crowded_);
    while (counters_[peer].step.load(std::memory_order_acquire) < step) backoff.pause();
}

void LimitMemory::await_all(std::uint64_t step) const {
    for (int i = 1; i < ranks_; ++i) await((rank_ + i) % ranks_, step);
}

void LimitMemory::await_released(std::uint64_t count) const {
    Backoff backoff(crowded_);
    for (int peer = 0; peer < ranks_; ++peer)
        while (counters_[peer].released.load(std::memory_order_acquire) < count) backoff.pause();
}

}  // namespace vescomm::perf
