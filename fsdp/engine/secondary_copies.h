// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The secondary copies of gathered parameters. A group of ranks has all of them, so that only the
// first gather of a unit after a step leaves the group:
//
//     masters of all ranks ──all_to_all_v──► a part on each rank ──all_gather_v──► unit slot
//                       first gather of a unit             each gather, within the group
//
// A part has the type in which the unit travels, see fsdp/spec/gather_parts.h. Values are rounded
// as in a gather without copies.
//
// Source: Wang et al., "ZeRO++", 2023, section 3.2, hierarchical partitioning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/shards.h"

namespace vescomm::fsdp {

class SecondaryCopies {
public:
    // All arguments must outlive the object.
    SecondaryCopies(const ModelPlan &plan, const Shards &shards, Comms &comms);

    // False: gathers read masters.
    bool exist() const { return plan_.mesh.secondary_ranks > 0; }
    // True if there are copies, and that of a unit is neither filled nor being filled.
    bool lack(int unit) const { return exist() && states_[unit] == State::stale; }
    // True if fill() would create a request. All ranks do or none does.
    bool creates(int unit, int slot) const;
    // Starts to fill this rank's part of a unit that is gathered into a slot.
    void fill(int unit, int slot);
    // Makes progress. True if the part is complete, or there are no copies.
    bool filled(int unit);
    // Waits until it is.
    void await(int unit);
    // This rank's part of a bucket.
    std::byte *part(std::size_t bucket) const { return parts_.data() + offsets_[bucket]; }
    // The masters change.
    void forget() { states_.assign(states_.size(), State::stale); }

    std::uint64_t bytes() const;

private:
    enum class State { stale, filling, filled };
    struct FreeRequest {
        // A running request writes to the parts. It ends when the engine is aborted.
        void operator()(vescomm_request_t *request) const noexcept {
            vescomm_request_wait(request);
            vescomm_request_free(request);
        }
    };
    using RequestPointer = std::unique_ptr<vescomm_request_t, FreeRequest>;

    // Masters are sent from where they are, converted shards from memory of the slot.
    int source_slot(int slot, std::size_t bucket) const;
    void convert(std::size_t bucket, std::byte *to) const;
    void start(std::size_t bucket, int slot);
    // Calls body(request) for the requests of a unit that is being filled.
    template <typename Body>
    void for_requests(int unit, Body &&body);

    const ModelPlan &plan_;
    const Shards &shards_;
    Comms &comms_;
    int position_;
    std::vector<std::uint64_t> offsets_;  // by bucket: bytes in parts_
    std::vector<std::uint64_t> converted_offsets_;  // by bucket: bytes in an entry of converted_
    AlignedBytes parts_;
    std::vector<AlignedBytes> converted_;  // by slot
    std::vector<State> states_;  // by unit
    std::vector<int> slots_;  // by unit: the slot of fill()
    std::map<std::pair<int, std::size_t>, RequestPointer> requests_;  // by source slot and bucket
};

}  // namespace vescomm::fsdp
