// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Sums of gradients that travel in 8 bits. A contribution is quantised once, on the rank that wrote
// it, and summed in f32 by the rank that owns the shard, in the order of ranks:
//
//     start     quantise the gradients of a bucket; all_to_all_v of codes and scales
//     finish    wait; sum the codes of all ranks for this rank's shard
//
// The sum depends neither on nodes nor on algorithms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fsdp/engine/code_runs.h"
#include "fsdp/engine/comms.h"
#include "fsdp/engine/shards.h"

namespace vescomm::fsdp {

class QuantisedSums {
public:
    // Factors of a sum.
    struct Factors {
        float dense = 1;
        float experts = 1;
    };

    // `plan` and `comms` must outlive the object.
    QuantisedSums(const ModelPlan &plan, const Factors &factors, Comms &comms);

    // The slot for codes that a gradient slot uses; -1: none.
    int slot_for(int gradient_slot) const { return plan_.sum_slot_for(gradient_slot); }
    bool creates(int slot, std::size_t bucket) const { return !requests_.contains({slot, bucket}); }
    // Starts the sum of the gradients of a bucket, which are not needed any more afterwards.
    void start(int slot, std::size_t bucket, const void *gradients);
    // Waits, and writes the sum of this rank's shard to `to`, or adds it. Elements between
    // parameters stay as they are.
    void finish(int slot, std::size_t bucket, float *to, bool add);

    std::uint64_t bytes() const;

private:
    struct FreeRequest {
        // A running request writes to memory of the slots. It ends when the engine is aborted.
        void operator()(vescomm_request_t *request) const noexcept {
            vescomm_request_wait(request);
            vescomm_request_free(request);
        }
    };
    using RequestPointer = std::unique_ptr<vescomm_request_t, FreeRequest>;

    struct Slot {
        AlignedBytes sent;  // codes and scales for each rank
        AlignedBytes received;  // those of each rank for this one
    };

    const ModelPlan &plan_;
    Factors factors_;
    Comms &comms_;
    int position_;
    std::vector<std::uint64_t> sent_, received_;  // by bucket: bytes in the slot
    std::vector<Slot> slots_;
    std::map<std::pair<int, std::size_t>, RequestPointer> requests_;
    std::vector<float> sums_;  // of one run, when sums are added
    std::vector<QuantisedSource> sources_;  // by rank
};

}  // namespace vescomm::fsdp
