// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The gradients that the trainer writes: slots of this rank, and the requests that sum them into
// the gradient shards.
//
//     acquire ─► the trainer writes ─► send ─► (drained by the next acquire of the slot, or finish)
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/event_log.h"
#include "fsdp/engine/gradient_norm.h"
#include "fsdp/engine/quantised_sums.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/slot_pool.h"
#include "fsdp/engine/watch.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

class GradientSlots {
public:
    // All arguments must outlive the slots. Collective.
    GradientSlots(const Spec &spec, const ModelPlan &plan, const Shards &shards,
                  std::span<const std::string> unit_names, Comms &comms, Watch &watch,
                  GradientNorm &norm);

    // Gives a unit a slot, unless it has one. Throws Failure if all slots are in use.
    void acquire(int unit);
    // The memory of a gradient of a unit with a slot, and whether an earlier use has written it.
    void *data(std::size_t parameter) const;
    bool written(std::size_t parameter) const { return written_[parameter]; }
    void set_written(std::size_t parameter) { written_[parameter] = true; }
    // Returns how the trainer writes a gradient, and counts it as written. A gradient of several
    // parameters of one unit is always added to, and begins as zero: the trainer may ask for all of
    // them before it writes the first one.
    vescomm_fsdp_gradient_mode_t begin_write(std::size_t parameter);
    // Starts to sum the gradients of a unit. Those that were not written are zero.
    void send(int unit, const Announcement &announcement);
    // True: sums may be running.
    bool sending() const;
    // Waits for all sums. The gradient shards of units that were not sent become zero if `last`.
    void finish(bool last);
    // The next step begins: the first sum of a unit overwrites its gradient shard.
    void begin_step();

    // Slots, and gradients in transfer in 8 bits.
    std::uint64_t bytes() const;
    std::uint64_t scratch_bytes() const;

private:
    struct Slot {
        Memory memory;
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
    std::vector<std::uint64_t> offsets_;  // by bucket: bytes in the slot
    std::vector<std::int64_t> scratch_offsets_;  // by bucket: elements in the scratch of the slot
    std::vector<Slot> slots_;
    std::map<std::pair<int, std::size_t>, Buffer> buffers_;
    std::map<Key, Request> requests_;
    QuantisedSums quantised_;  // of buckets whose gradients travel in 8 bits
    std::vector<bool> written_;  // by parameter
    std::vector<bool> shared_;  // by parameter: several parameters of one unit have its gradient
    std::vector<bool> summed_;  // by unit: its gradient shard has a sum of this step
};

}  // namespace vescomm::fsdp
