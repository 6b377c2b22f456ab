// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Gathers of units in 8 bits. Each code slot is a slab of the node:
//
//     start     each rank quantises its shard, unless it has a secondary copy; a request gathers
//               codes and scales of all ranks
//     finish    the ranks of the node divide the runs among them and write the parameters, once
//
// A rank claims one run after another from a counter in the slab. A rank that comes first does all
// the work, and one that comes last finds it done: nobody waits for a rank that is not in finish().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/secondary_copies.h"
#include "fsdp/engine/shards.h"

namespace vescomm::fsdp {

class CodeSlots {
public:
    // All arguments must outlive the slots. Collective.
    CodeSlots(const ModelPlan &plan, const Shards &shards, const SecondaryCopies &copies,
              std::span<const std::string> unit_names, Comms &comms);

    // The code slot that a unit slot uses.
    int slot_for(int unit_slot) const;
    // True if create() there would create a request, which all ranks of the group must do.
    bool creates(int slot, std::size_t bucket) const { return !channels_.contains({slot, bucket}); }
    void create(int slot, std::size_t bucket) { channel(slot, bucket); }
    // Quantises this rank's shard of a bucket, and starts to gather it. With secondary copies its
    // part is filled already. The buckets of a unit are started in order, after finish() of the
    // unit before.
    void start(int slot, std::size_t bucket);
    // Waits for the codes of the buckets of a unit and writes the parameters to data(bucket).
    // All ranks of the node must have stopped to read what is there.
    using Data = std::function<void *(std::size_t bucket)>;
    void finish(int slot, std::size_t unit, const Data &data);

    std::uint64_t bytes() const;

private:
    struct Slot {
        Memory codes;  // of the node: counters, then codes and scales of all ranks
        AlignedBytes own;  // codes and scales of this rank; empty with secondary copies
        std::uint64_t runs = 0;  // of all units that were in the slot before
    };
    struct Channel {
        Buffer buffer;
        Request request;
    };

    Channel &channel(int slot, std::size_t bucket);
    void write_parameters(const Slot &slot, std::size_t unit, const Data &data);
    // The ranks that are writing runs of a unit, for an error sentence. `ranks`: a byte for each.
    std::string name_writers(std::uint8_t *ranks, UnitKind kind) const;

    const ModelPlan &plan_;
    const Shards &shards_;
    const SecondaryCopies &copies_;
    std::span<const std::string> unit_names_;
    Comms &comms_;
    int position_;
    // By bucket: bytes in the slab, behind the counters, and in this rank's codes.
    std::vector<std::uint64_t> offsets_, own_offsets_;
    std::vector<Slot> slots_;
    std::map<std::pair<int, std::size_t>, Channel> channels_;
};

}  // namespace vescomm::fsdp
