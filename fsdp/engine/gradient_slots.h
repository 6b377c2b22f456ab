// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The gradients that the trainer writes: slots of this rank, and the requests that sum them into
// the gradient shards.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/gradient_norm.h"
#include "fsdp/engine/gradient_writes.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/quantised_sums.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/slot_pool.h"
#include "fsdp/engine/transfers.h"
#include "fsdp/engine/watch.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

class GradientSlots : public GradientMemory {
public:
    // All arguments must outlive the slots. Collective.
    GradientSlots(const Spec &spec, const ModelPlan &plan, const Shards &shards,
                  std::span<const std::string> unit_names, Comms &comms, Watch &watch,
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

    // Slots, and gradients in transfer in 8 bits.
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
    // A bucket in a slot, summed into the shard or into scratch.
    struct Key {
        int slot;
        std::size_t bucket;
        bool adds;
        auto operator<=>(const Key &) const = default;
    };

    void drain(Slot &slot);
    Request &request(const Key &key);
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

    const Spec &spec_;
    const ModelPlan &plan_;
    const Shards &shards_;
    std::span<const std::string> unit_names_;
    Comms &comms_;
    Watch &watch_;
    GradientNorm &norm_;
    float expert_divisor_;  // of sums over the ranks with the same experts
    SlotPool pool_;
    std::vector<std::size_t> parts_;  // by bucket: the part of the slot
    std::vector<std::int64_t> scratch_offsets_;  // by bucket: elements in the scratch of the slot
    std::vector<Slot> slots_;
    Transfers transfers_;  // by slot
    std::map<std::pair<int, std::size_t>, Buffer> buffers_;
    std::map<Key, Request> requests_;
    QuantisedSums quantised_;  // of buckets whose gradients travel in 8 bits
    GradientWrites writes_;
    std::vector<bool> summed_;  // by unit: its gradient shard has a sum of this step
};

}  // namespace vescomm::fsdp
