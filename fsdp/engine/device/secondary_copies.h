// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The secondary copies of gathered parameters in device memory. The first gather of a unit after a
// step is one of all ranks that shard it; each rank keeps its part, which later gathers within the
// group read:
//
//     first   masters ──► own shard of the slot ──all_gather_v of all ranks──► slot ──► part
//     later   part ──► own part of the slot ──all_gather_v of the group──► slot
//
// Parts are in the type in which a bucket travels, see fsdp/spec/gather_parts.h. Only the gather
// stream accesses them.
//
// Source: Wang et al., "ZeRO++", 2023, section 3.2, hierarchical partitioning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdp/engine/device/cuda.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp::device {

class SecondaryCopies {
public:
    // `plan` must outlive the object.
    SecondaryCopies(const ModelPlan &plan, int position);

    // True if there are copies, and that of a unit has not been kept since the masters changed.
    bool lack(int unit) const { return exist() && !kept_[static_cast<std::size_t>(unit)]; }
    bool exist() const { return plan_.mesh.secondary_ranks > 0; }
    // Copies this rank's part of a bucket from the gathered elements, or to its place among them.
    // `type`: that in which the bucket travels.
    void keep(std::size_t bucket, const std::byte *gathered, vescomm_type_t type,
              cuda::Stream stream) const;
    void restore(std::size_t bucket, std::byte *gathered, vescomm_type_t type,
                 cuda::Stream stream) const;
    // All buckets of the unit are kept.
    void set_kept(int unit) { kept_[static_cast<std::size_t>(unit)] = true; }
    // The masters change.
    void forget() { kept_.assign(kept_.size(), false); }
    // The shards of all ranks that shard a bucket, in the type in which it travels. There must be
    // copies.
    const Layout &whole(std::size_t bucket) const { return wholes_[bucket]; }
    std::uint64_t bytes() const { return parts_.size(); }

private:
    // Elements in the type in which a bucket travels.
    struct Part {
        std::int64_t begin = 0;  // among those of all ranks
        std::int64_t count = 0;
        std::uint64_t offset = 0;  // bytes in parts_
    };

    const ModelPlan &plan_;
    std::vector<Part> own_;  // by bucket: of this rank; empty without copies
    Bytes parts_;
    std::vector<Layout> wholes_;  // by bucket
    std::vector<bool> kept_;  // by unit
};

}  // namespace vescomm::fsdp::device
