// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/readable_masters.h"

#include <algorithm>
#include <cstring>

namespace vescomm::fsdp::device {

std::uint64_t staged_master_bytes(const Spec &spec, const ModelPlan &plan, int position) {
    if (spec.offload_folder().empty()) return 0;
    std::uint64_t largest = 0;
    for (const Bucket &bucket : plan.buckets)
        largest = std::max(largest, static_cast<std::uint64_t>(bucket.shard(position)) *
                                        vescomm_type_get_bytes(bucket.master_type));
    return 2 * align_bucket(largest);
}

ReadableMasters::ReadableMasters(const Shards &shards, std::uint64_t bytes, Links &links)
    : shards_(shards), links_(links), staged_(bytes, Place::pinned) {}

Masters ReadableMasters::copy(std::size_t bucket) {
    part_ = 1 - part_;
    links_.wait(read_[part_]);
    Masters masters = shards_.master(bucket);
    if (masters.size == 0) return masters;
    shards_.will_need_master(bucket);
    std::byte *const to = staged_.data() + staged_.size() / 2 * static_cast<std::size_t>(part_);
    std::memcpy(to, masters.data, masters.bytes().size());
    shards_.rest_master(bucket);
    masters.data = to;
    return masters;
}

}  // namespace vescomm::fsdp::device
