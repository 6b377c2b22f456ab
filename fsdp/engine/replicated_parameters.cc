// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/replicated_parameters.h"

namespace vescomm::fsdp {

ReplicatedParameters::ReplicatedParameters(const ModelPlan &plan, const Shards &shards,
                                           bool on_device)
    : plan_(plan), shards_(shards), converted_(plan.of_unit.size(), false) {
    std::uint64_t end = 0;
    for (const Bucket &bucket : plan.buckets) {
        offsets_.push_back(end);
        end += align_bucket(bucket.converted_bytes());
    }
    if (on_device) of_device_ = device::Bytes(end, device::Place::device, plan.device_allocator);
    else if (end > 0) of_host_ = AlignedBytes(end, plan.allocator);
    copies_ = on_device ? of_device_.data() : of_host_.data();
}

std::byte *ReplicatedParameters::data(std::size_t bucket) const {
    if (plan_.buckets[bucket].converted_bytes() > 0) return copies_ + offsets_[bucket];
    return shards_.master(bucket).data;
}

}  // namespace vescomm::fsdp
