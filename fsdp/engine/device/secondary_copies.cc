// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/secondary_copies.h"

#include <numeric>

#include "fsdp/spec/gather_parts.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

SecondaryCopies::SecondaryCopies(const ModelPlan &plan, int position)
    : plan_(plan), kept_(plan.of_unit.size(), false) {
    if (!exist()) return;
    std::uint64_t end = 0;
    for (const Bucket &bucket : plan.buckets) {
        const std::vector<std::int64_t> parts = part_elements(plan.mesh, bucket);
        const auto part = parts.begin() + plan.mesh.part(position);
        own_.push_back({std::accumulate(parts.begin(), part, std::int64_t{0}), *part, end});
        end += align_bucket(part_bytes(plan.mesh, bucket, position));
        std::vector<std::int64_t> shards;
        for (int other = 0; other < plan.mesh.shard_ranks; ++other)
            shards.push_back(transfer_elements(bucket, other));
        wholes_.push_back(Layout::from_counts(shards));
    }
    parts_ = Bytes(end, Place::device, plan.device_allocator);
}

void SecondaryCopies::keep(std::size_t bucket, const std::byte *gathered, vescomm_type_t type,
                           cuda::Stream stream) const {
    const Part &own = own_[bucket];
    if (own.count == 0) return;
    const vescomm_gpu_piece_t piece = {0, own.begin, own.count};
    check(vescomm_gpu_copy(parts_.data() + own.offset, type, gathered, type, &piece, 1, stream));
}

void SecondaryCopies::restore(std::size_t bucket, std::byte *gathered, vescomm_type_t type,
                              cuda::Stream stream) const {
    const Part &own = own_[bucket];
    if (own.count == 0) return;
    const vescomm_gpu_piece_t piece = {own.begin, 0, own.count};
    check(vescomm_gpu_copy(gathered, type, parts_.data() + own.offset, type, &piece, 1, stream));
}

}  // namespace vescomm::fsdp::device
