// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fsdp/engine/device/cuda.h"
#include "fsdp/engine/device/links.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/shards.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp::device {

// A device buffer of f32, of which each rank of a communicator sums a part.
struct OrderedSums {
    // `most`: elements in one sum. Collective.
    void create(const Link &link, int ranks, std::size_t most);

    Buffer buffer;
    float *data = nullptr;
    std::size_t elements = 0;
};

// Sums gradient shards over replicas, and those of replicated parameters over all ranks.
//
// NCCL sums in any order. If the communicators ask for reproducible sums, kernels add the values of
// all ranks in the order of the ranks, in a device buffer that is scattered and gathered: the bits
// are those of host memory.
class ReplicaSums {
public:
    // All arguments must outlive the object. `scratch`: of gradient_scratch_bytes(). Collective.
    ReplicaSums(const Spec &spec, const ModelPlan &plan, const Shards &shards, const Bytes &scratch,
                Links &links, Streams &streams);

    // Put the sums on the reduce stream. Collective.
    void over_replicas();
    void of_replicated();
    // Memory of the device buffers.
    std::uint64_t bytes() const;

private:
    // Creates the buffer if the communicator needs one. Collective.
    static void order(std::optional<OrderedSums> &ordered, const Link &link, int ranks,
                      std::size_t elements);
    // Sums gradient shards over the `ranks` ranks of a communicator, in parts if they cannot be
    // summed where they are.
    void all_reduce(Link &link, const std::optional<OrderedSums> &ordered, int ranks,
                    std::span<float> gradients);
    // Sums a part, with the sums in `sum` on the way, which may be the part.
    void sum_part(Link &link, const std::optional<OrderedSums> &ordered, int ranks,
                  std::span<float> part, float *sum);

    const Spec &spec_;
    const ModelPlan &plan_;
    const Shards &shards_;
    const Bytes &scratch_;
    Links &links_;
    Streams &streams_;
    std::optional<OrderedSums> replicas_, world_;  // none: NCCL sums
};

}  // namespace vescomm::fsdp::device
