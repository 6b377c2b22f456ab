// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The gathered parameters: slots, each a slab of the node, and the requests that fill them. It does
// what SlotPool decides.
//
// With secondary copies a gather waits in a queue until this rank's part is filled. Gathers start
// in the order of gather(), which is the same on all ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/code_slots.h"
#include "fsdp/engine/comms.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/replicated_parameters.h"
#include "fsdp/engine/secondary_copies.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/transfers.h"
#include "fsdp/engine/watch.h"

namespace vescomm::fsdp {

class ParameterSlots : public UnitMemory {
public:
    // All arguments must outlive the slots. Collective.
    ParameterSlots(const ModelPlan &plan, const Shards &shards,
                   std::span<const std::string> unit_names, Comms &comms, Watch &watch,
                   EventTimes &times);

    ~ParameterSlots() override;
    ParameterSlots(const ParameterSlots &) = delete;
    ParameterSlots &operator=(const ParameterSlots &) = delete;

    bool gather(int unit, int slot, const Announcement &announcement) override;
    void await(int slot) override;
    void advance() override;
    void await_all() override;
    void forget_copies() override;
    void closed(int) override {}
    void release(int slot) override;
    void *data(int slot, std::size_t bucket) const override;
    std::uint64_t bytes() const override;

private:
    struct Slot {
        Memory memory;
        Memory quantised;  // parameters that are gathered in 8 bits
        int unit = -1;
        bool running = false;  // the gather has not been waited for
        std::uint64_t announced = 0;
    };
    // A bucket in a slot.
    struct Channel {
        Buffer buffer;
        Request request;
    };

    Channel &channel(int slot, std::size_t bucket);
    // Creates the requests of a unit that do not exist yet, on all ranks of the group.
    void create_requests(int unit, int slot);
    // Starts the gather at the head of the queue.
    void start_next();
    // Starts the gather of a slot and those before it, when their parts are filled.
    void start_until(int slot);
    // Calls body(bucket) for the buckets of a unit that are gathered in their own type.
    template <typename Body>
    void for_plain_buckets(int unit, Body &&body) const;

    const ModelPlan &plan_;
    const Shards &shards_;
    std::span<const std::string> unit_names_;
    Comms &comms_;
    Watch &watch_;
    std::vector<std::uint64_t> offsets_;  // by bucket: bytes in the slot
    std::vector<Slot> slots_;
    Transfers transfers_;  // by slot
    SecondaryCopies copies_;
    CodeSlots codes_;
    ReplicatedParameters replicated_;
    std::deque<int> queue_;  // slots whose gathers have not started
    // By slot and bucket. Created at the first use of a unit in a slot.
    std::map<std::pair<int, std::size_t>, Channel> channels_;
};

}  // namespace vescomm::fsdp
