// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The gradients that the trainer writes: slots of this rank, and the requests that sum them into
// the gradient shards.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/gradient_norm.h"
#include "fsdp/engine/gradient_requests.h"
#include "fsdp/engine/gradient_units.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/quantised_sums.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/transfers.h"
#include "fsdp/engine/watch.h"

namespace vescomm::fsdp {

class GradientSlots : public GradientMemory {
public:
    // All arguments must outlive the slots. Collective.
    GradientSlots(const Model &model, const Shards &shards, Comms &comms, Watch &watch,
                  GradientNorm &norm, EventTimes &times);

    void acquire(int unit) override;
    void *data(std::size_t parameter) const override;
    vescomm_fsdp_gradient_mode_t begin_write(std::size_t parameter) override;
    void push(std::size_t parameter, const void *data, vescomm_type_t type) override;
    void send(int unit, const Announcement &announcement) override;
    bool sending() const override;
    void finish(bool last) override;
    void sum_over_replicas() override;
    void sum_replicated() override;
    void begin_step() override;
    void drop() override;

    // Slots, gradients in transfer in 8 bits, and partial sums.
    std::uint64_t bytes() const override;
    std::uint64_t scratch_bytes() const override;

private:
    struct Slot {
        std::vector<Memory> parts;  // one for each trainable bucket of a unit
        AlignedBytes scratch;  // allocated when a second sum of a step is first sent from the slot
        int sending = -1;  // unit whose sum has not been waited for
        bool adds = false;  // the sum goes to scratch, and is added to the shard
        std::uint64_t announced = 0;
    };
    // The places of the parts of a unit in its slot.
    struct Places {
        explicit Places(const ModelPlan &plan, const Shards &shards);

        std::vector<std::size_t> parts;  // by bucket: the part of the slot
        std::vector<std::int64_t> scratch;  // by bucket: elements in the scratch of the slot
    };

    void drain(Slot &slot);
    // Starts to sum a bucket of the unit in the slot.
    void start_sum(int number, std::size_t bucket);
    // Adds this rank's gradients of a replicated bucket to the sums of earlier micro-batches.
    void keep(int slot, std::size_t bucket) const;
    // Sums gradients in place over the ranks of a communicator.
    void all_reduce(Communicator &comm, std::span<float> gradients) const;
    void fill_with_zeros(int unit, int slot);
    std::byte *bucket_data(int slot, std::size_t bucket) const;
    float *scratch_of(const Slot &slot, std::size_t bucket) const;
    // The ranks among which the gradients of a bucket are summed.
    Communicator &comm_of(std::size_t bucket) const;
    // Divides a sum of experts, and adds it to the shard if it is in scratch.
    void finish_sum(const Slot &slot, std::size_t bucket) const;

    const Model &model_;
    const Shards &shards_;
    Comms &comms_;
    Watch &watch_;
    GradientNorm &norm_;
    GradientUnits units_;
    const Places places_;
    std::vector<Slot> slots_;
    Transfers transfers_;  // by slot
    GradientRequests requests_;
    QuantisedSums quantised_;  // of buckets whose gradients travel in 8 bits
};

}  // namespace vescomm::fsdp
