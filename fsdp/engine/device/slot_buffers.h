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
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp::device {

enum class SlotUse {
    parameters,  // of the ranks that gather a unit; those in 8 bits have memory and no buffer
    codes,  // of parameters that are gathered in 8 bits, of the same ranks
    gradients,  // of the ranks that shard a unit
};

class SlotBuffers {
public:
    // All arguments must outlive the object. Collective.
    SlotBuffers(const ModelPlan &plan, int position, SlotUse use,
                std::span<const std::string> unit_names, Links &links);

    // The buffers of a unit in one of its slots, of the buckets that travel.
    std::span<vescomm_gpu_buffer_t *const> of(int slot, std::size_t unit) const;
    // Device addresses of a bucket with memory, and of this rank's shard of it.
    std::byte *data(int slot, std::size_t bucket) const {
        return slots_[static_cast<std::size_t>(slot)].data() + offsets_[bucket];
    }
    std::byte *shard(int slot, std::size_t bucket) const;
    // True if the bucket has memory.
    bool has(std::size_t bucket) const;
    // True if it has a buffer, too.
    bool travels(std::size_t bucket) const;
    vescomm_type_t type(std::size_t bucket) const;
    std::uint64_t bytes() const;

private:
    Layout layout(std::size_t bucket) const;
    vescomm_gpu_buffer_options_t options(std::size_t bucket,
                                         std::span<const std::string> unit_names) const;
    // The slots that a unit may use.
    std::vector<int> slots_of(std::size_t unit) const;
    Link &link(Links &links, UnitKind kind) const;
    // Decides where buckets lie in slots. Returns the kind of units of each slot.
    std::vector<UnitKind> measure(std::span<const std::string> unit_names);

    const ModelPlan &plan_;
    int position_;
    SlotUse use_;
    std::vector<std::uint64_t> sizes_;  // by slot
    std::vector<Registered> slots_;
    std::vector<std::uint64_t> offsets_;  // by bucket: bytes in the slot
    std::vector<Buffer> buffers_;
    std::map<std::pair<int, std::size_t>, std::vector<vescomm_gpu_buffer_t *>> lists_;
};

}  // namespace vescomm::fsdp::device
