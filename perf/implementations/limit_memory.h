// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory that the ranks of `limit` share, and the counters by which they tell one another how
// far they are.
//
//     | one seat for each rank | slab of the node | region of rank 0 | region of rank 1 | ...
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

    // What the coordinator has to make for buffers of so many bytes.
    static std::size_t bytes_for(int ranks, std::int64_t largest);

    std::byte *slab() const { return data_; }
    std::byte *region(int rank) const { return data_ + (rank + 1) * region_bytes_; }
    std::size_t region_bytes() const { return region_bytes_; }

    // This rank has come to step `step` of its life; steps only rise.
    void arrive(std::uint64_t step) { seats_[rank_].step.store(step, std::memory_order_release); }
    void await(int peer, std::uint64_t step) const;
    void await_all(std::uint64_t step) const;

    // This rank has read what the slab held before its result number `count` + 1.
    void release(std::uint64_t count) {
        seats_[rank_].released.store(count, std::memory_order_release);
    }
    void await_released(std::uint64_t count) const;

private:
    // Two lines apart: processors fetch lines in pairs.
    struct alignas(128) Seat {
        std::atomic<std::uint64_t> step;
        std::atomic<std::uint64_t> released;
    };

    int rank_;
    int ranks_;
    bool crowded_;
    std::size_t bytes_;
    void *memory_;
    Seat *seats_;
    std::byte *data_;
    std::size_t region_bytes_;
};

}  // namespace vescomm::perf
