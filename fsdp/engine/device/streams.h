// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The streams of an engine on device memory. They live as long as the shards:
//
//     compute   the trainer's; the engine adds zeros, and waits
//     gather    casts of masters, all_gather_v
//     reduce    reduce_scatter_v, sums into the gradient shards, the norm, the optimizers
#pragma once

#include <cstddef>
#include <cstdint>

#include "fsdp/engine/device/cuda.h"

namespace vescomm::fsdp::device {

class Streams {
public:
    Streams();

    // The stream of the trainer's work before and after an event.
    // Throws Failure if another device than that of the engine is current.
    void use(void *compute);
    // Number of the last use(). A handle does not identify a stream: CUDA gives a new one that of
    // an old one.
    std::uint64_t uses() const { return uses_; }
    // Throws Failure if another device than that of the engine is current.
    void check_device() const;
    cuda::Stream compute() const { return compute_; }
    cuda::Stream gather() const { return gather_; }
    cuda::Stream reduce() const { return reduce_; }

    // Later work of `to` waits for the work of `from` so far.
    void order(cuda::Stream from, cuda::Stream to);
    // The reduce stream has work that writes masters: the next gather waits for it.
    void write_masters() { masters_written_ = true; }
    void gather_after_writes();

    // Copies, and waits for them. For set-up and checkpoints.
    void to_host(void *target, const void *source, std::size_t bytes);
    void to_device(void *target, const void *source, std::size_t bytes);

private:
    void copy(void *target, const void *source, std::size_t bytes, int kind);

    int device_;
    cuda::Stream compute_ = nullptr;
    std::uint64_t uses_ = 0;
    Stream gather_, reduce_;
    Event now_;
    bool masters_written_ = false;
};

}  // namespace vescomm::fsdp::device
