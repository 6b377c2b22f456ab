// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory that the ranks of `limit` share, and the counters by which they synchronise.
//
//     | counters of each rank | slab of the node | region of rank 0 | region of rank 1 | ...
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "perf/worker/serve.h"

namespace vescomm::perf {

class LimitMemory {
public:
    explicit LimitMemory(const Worker &worker);
    ~LimitMemory();
    LimitMemory(const LimitMemory &) = delete;
    LimitMemory &operator=(const LimitMemory &) = delete;

    // Returns the size of the SharedFile for buffers of `largest` bytes.
    static std::size_t bytes_for(int ranks, std::int64_t largest);

    std::byte *slab() const { return data_; }
    std::byte *region(int rank) const { return data_ + (rank + 1) * region_bytes_; }
    std::size_t region_bytes() const { return region_bytes_; }

    // Announces that this rank has reached step `step`; steps only rise.
    void arrive(std::uint64_t step) {
        counters_[rank_].step.store(step, std::memory_order_release);
    }
    void await(int peer, std::uint64_t step) const;
    void await_all(std::uint64_t step) const;

    // Announces that this rank has read the first `count` results of the slab.
    void release(std::uint64_t count) {
        counters_[rank_].released.store(count, std::memory_order_release);
    }
    void await_released(std::uint64_t count) const;

private:
    // Aligned to two cache lines, because processors prefetch lines in pairs.
    struct alignas(128) Counters {
        std::atomic<std::uint64_t> step;
        std::atomic<std::uint64_t> released;
    };

    int rank_;
    int ranks_;
    bool crowded_;
    std::size_t bytes_;
    void *memory_;
    Counters *counters_;  // of each rank
    std::byte *data_;
    std::size_t region_bytes_;
};

}  // namespace vescomm::perf
