// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The gathered parameters on device memory. The host puts work on streams, and waits for nothing:
//
//     compute ──closed──┐                                    ┌──► compute
//     gather            └─► own shard ─► all_gather_v ───────┘ gathered
//
// The own shard is cast from the masters, or quantised; with secondary copies, the own part of a
// later gather is copied. Codes are converted after the all_gather_v. Replicated parameters are
// masters of this rank, or copies of them that the gather stream makes.
#pragma once

#include <vector>

#include "fsdp/engine/device/codes.h"
#include "fsdp/engine/device/readable_masters.h"
#include "fsdp/engine/device/secondary_copies.h"
#include "fsdp/engine/device/slot_buffers.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/replicated_parameters.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/transfers.h"
#include "fsdp/engine/watch.h"

namespace vescomm::fsdp::device {

class Parameters : public UnitMemory {
public:
    // `staged_bytes`: see readable_masters.h. The other arguments must outlive the object.
    // Collective.
    Parameters(const ModelPlan &plan, const Shards &shards, int position,
               std::uint64_t staged_bytes, std::span<const std::string> unit_names, Watch &watch,
               Links &links, Streams &streams, const Transfers &transfers);

    bool gather(int unit, int slot, const Announcement &announcement) override;
    void await(int slot) override;
    void advance() override {}
    void await_all() override;
    void forget_copies() override;
    void closed(int slot) override;
    void release(int) override {}
    void *data(int slot, std::size_t bucket) const override;
    std::uint64_t bytes() const override {
        return buffers_.bytes() + codes_.buffers().bytes() + copies_.bytes() + replicated_.bytes() +
               masters_.bytes();
    }

private:
    struct Slot {
        int unit = -1;
        Event closed;  // on the last compute stream, after the uses on others
        Event gathered;  // on the gather stream
        bool running = false;  // no stream of the trainer waits for the gather
        std::uint64_t awaited = 0;  // Streams::uses() of the last one that does
    };

    // Puts the gather of a unit on the streams. `whole`: it reads masters, on all ranks that shard
    // the unit.
    void start(int unit, int slot, bool whole, const Announcement &announcement);
    // The parts of start(), on the gather stream.
    void gather_sharded(int unit, int slot, bool whole, std::uint64_t announced);
    void convert_replicated(int unit);
    void put_masters(int unit, int slot);
    void copy_masters(std::size_t bucket, std::byte *to, vescomm_type_t type);
    void gather_masters(int unit, int slot);
    void gather_parts(int unit, int slot);
    void write_parameters(int unit, int slot);
    // Calls body(bucket, buffers, slot) for the buckets of a unit that travel, with the buffers in
    // which they do, and their slot.
    template <typename Body>
    void for_travelling(int unit, int slot, Body &&body) const;
    // True if a bucket of the unit is gathered, or replicated.
    bool gathers(int unit) const;
    bool replicates(int unit) const;

    const ModelPlan &plan_;
    const Shards &shards_;
    int position_;
    Watch &watch_;
    Links &links_;
    Streams &streams_;
    // Destroyed after the buffers, which wait for the device. Their creation may fail on one rank.
    SecondaryCopies copies_;
    ReplicatedParameters replicated_;
    ReadableMasters masters_;
    std::vector<Slot> slots_;
    SlotBuffers buffers_;
    Codes codes_;
    Transfers transfers_;  // by slot: their starts by the host
    std::vector<const Link *> connected_;  // those with a gather
    std::vector<vescomm_gpu_buffer_t *> group_;  // of one call
};

}  // namespace vescomm::fsdp::device
