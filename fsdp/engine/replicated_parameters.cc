// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/replicated_parameters.h"

#include "execute/kernels.h"

namespace vescomm::fsdp {

ReplicatedParameters::ReplicatedParameters(const ModelPlan &plan, const Shards &shards)
    : plan_(plan), shards_(shards), converted_(plan.of_unit.size(), false) {
    std::uint64_t end = 0;
    for (const Bucket &bucket : plan.buckets) {
        offsets_.push_back(end);
        end += align_bucket(bucket.converted_bytes());
    }
    if (end > 0) copies_ = AlignedBytes(end, plan.allocator);
}

void ReplicatedParameters::convert(int unit) {
    if (converted_[unit]) return;
    for (const std::size_t index : plan_.of_unit[unit]) {
        const Bucket &bucket = plan_.buckets[index];
        if (bucket.converted_bytes() == 0) continue;
        const Masters masters = shards_.master(index);
        internal::kernels().convert(data(index), bucket.type, masters.data, masters.type,
                                    masters.size);
    }
    converted_[unit] = true;
}

void *ReplicatedParameters::data(std::size_t bucket) const {
    if (plan_.buckets[bucket].converted_bytes() > 0) return copies_.data() + offsets_[bucket];
    return shards_.master(bucket).data;
}

}  // namespace vescomm::fsdp
