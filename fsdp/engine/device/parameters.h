// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The gathered parameters on device memory. The host puts work on streams, and waits for nothing:
//
//     compute ──closed──┐                                    ┌──► compute
//     gather            └─► cast own shard ─► all_gather_v ──┘ gathered
#pragma once

#include <vector>

#include "fsdp/engine/device/slot_buffers.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/transfers.h"
#include "fsdp/engine/watch.h"

namespace vescomm::fsdp::device {

class Parameters : public UnitMemory {
public:
    // All arguments must outlive the object. Collective.
    Parameters(const ModelPlan &plan, const Shards &shards, int position,
               std::span<const std::string> unit_names, Watch &watch, Links &links,
               Streams &streams, const Transfers &transfers);

    bool gather(int unit, int slot, const Announcement &announcement) override;
    void await(int slot) override;
    void advance() override {}
    void await_all() override;
    void forget_copies() override {}
    void closed(int slot) override;
    void release(int) override {}
    void *data(int slot, std::size_t bucket) const override;
    std::uint64_t bytes() const override { return buffers_.bytes(); }

private:
    struct Slot {
        int unit = -1;
        Event closed;  // on the last compute stream, after the uses on others
        Event gathered;  // on the gather stream
        bool running = false;  // no stream of the trainer waits for the gather
        cuda::Stream reader = nullptr;  // the last stream that does
    };

    // Puts the gather of a unit on the streams.
    void start(int unit, int slot, const Announcement &announcement);

    const ModelPlan &plan_;
    const Shards &shards_;
    int position_;
    Watch &watch_;
    Links &links_;
    Streams &streams_;
    SlotBuffers buffers_;
    std::vector<Slot> slots_;
    Transfers transfers_;  // by slot: their starts by the host
    bool connected_[2] = {};  // by kind of unit
};

}  // namespace vescomm::fsdp::device
