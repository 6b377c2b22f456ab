// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The gradients on device memory. NCCL sums them in their own type, in place; the shard of this
// rank is then added to the gradient shard in f32, on the reduce stream:
//
//     compute   the trainer writes, zeros ──┐ written       ┌──► the slot is used again
//     reduce                                └──► sum ─► add ┘ drained
//
// Those in f16 are divided before the sum, see predivisor(). Those with a reduce_type travel as
// codes, see quantised_sums.h. Gradients of replicated parameters are not summed here: each rank
// adds its own, and finish_backward() sums them over all ranks.
#pragma once

#include <vector>

#include "fsdp/engine/device/gradient_factors.h"
#include "fsdp/engine/device/quantised_sums.h"
#include "fsdp/engine/device/replica_sums.h"
#include "fsdp/engine/device/slot_buffers.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/gradient_units.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/transfers.h"
#include "fsdp/engine/watch.h"

namespace vescomm::fsdp::device {

class Gradients : public GradientMemory {
public:
    // All arguments must outlive the object. Collective.
    Gradients(const Model &model, const Shards &shards, int position, Watch &watch, Links &links,
              Streams &streams, const Transfers &transfers);

    void acquire(int unit) override;
    void *data(std::size_t parameter) const override;
    vescomm_fsdp_gradient_mode_t begin_write(std::size_t parameter) override;
    void push(std::size_t parameter, const void *data, vescomm_type_t type) override;
    void end_writes(int unit) override;
    void send(int unit, const Announcement &announcement) override;
    bool sending() const override { return sending_; }
    void finish(bool last) override;
    void sum_over_replicas() override;
    void sum_replicated() override;
    void begin_step() override;
    void drop() override;
    std::uint64_t bytes() const override { return buffers_.bytes() + quantised_.bytes(); }
    std::uint64_t scratch_bytes() const override { return scratch_.size() + replica_sums_.bytes(); }

private:
    // The calls of NCCL that were made.
    struct Connected {
        bool sums = false;
        bool exchanges = false;
    };
    // The last work on a slot.
    struct SlotEvents {
        Event written;  // by the trainer and by the engine, on compute streams
        Event drained;  // on the reduce stream
    };

    // Puts the sum of a unit in a slot on the streams.
    void start(int unit, int slot, bool adds, const Announcement &announcement);
    // Sums the gradients of sharded parameters of a unit in a slot, on the reduce stream.
    void sum(int unit, int slot, std::uint64_t announced);
    // Adds the sums of a unit in a slot, and its gradients of replicated parameters, to the
    // gradient shards, or overwrites these.
    void take_sum(int unit, int slot, bool adds);
    void fill_with_zeros(int unit, int slot);
    // Divides the gradients of a unit in a slot by their predivisors, on the reduce stream.
    void divide(int unit, int slot);
    // Calls the body, which puts work on the compute stream, after the writes of other streams into
    // the slot.
    template <typename Body>
    void write(int slot, Body &&body);

    const Model &model_;
    int position_;
    const Shards &shards_;
    Watch &watch_;
    Links &links_;
    Streams &streams_;
    const GradientFactors factors_;
    GradientUnits units_;
    // Destroyed after the buffers, which wait for the device. Their creation may fail on one rank.
    Bytes scratch_;  // in f32: scaled sums that are added, parts of shards in pinned memory
    QuantisedSums quantised_;
    std::vector<SlotEvents> events_;  // by slot
    SlotBuffers buffers_;
    ReplicaSums replica_sums_;
    Transfers transfers_;  // by slot: their starts by the host
    bool sending_ = false;  // sums of this micro-batch were started
    Connected connected_[2];  // by kind of unit
};

}  // namespace vescomm::fsdp::device
