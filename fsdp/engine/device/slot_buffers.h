// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Slots in registered device memory, with a device buffer for each bucket in each slot of its unit.
// All are made at creation, so that a step makes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/device/links.h"
#include "fsdp/engine/device/slot_plan.h"

namespace vescomm::fsdp::device {

class SlotBuffers {
public:
    // All arguments must outlive the object. Collective.
    SlotBuffers(const ModelPlan &plan, int position, SlotUse use,
                std::span<const std::string> unit_names, Links &links);

    // The buffers of a unit in one of its slots, of the buckets that travel.
    std::span<vescomm_gpu_buffer_t *const> of(int slot, std::size_t unit) const;
    // Device addresses of a bucket with memory, and of this rank's shard of it.
    std::byte *data(int slot, std::size_t bucket) const {
        return slots_[static_cast<std::size_t>(slot)].data() + places_.offset(bucket);
    }
    std::byte *shard(int slot, std::size_t bucket) const;
    // As those of SlotPlan.
    bool has(std::size_t bucket) const { return places_.has(bucket); }
    bool travels(std::size_t bucket) const { return places_.travels(bucket); }
    vescomm_type_t type(std::size_t bucket) const { return places_.type(bucket); }
    std::uint64_t bytes() const { return places_.bytes(); }

private:
    void make(std::span<const std::string> unit_names, Links &links);
    Link &link(Links &links, UnitKind kind) const;

    const ModelPlan &plan_;
    int position_;
    SlotPlan places_;
    std::vector<Registered> slots_;
    std::vector<Buffer> buffers_;
    std::map<std::pair<int, std::size_t>, std::vector<vescomm_gpu_buffer_t *>> lists_;
};

}  // namespace vescomm::fsdp::device
