// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/gather_parts.h"

#include <algorithm>

namespace vescomm::fsdp {

std::uint64_t transfer_bytes(const Bucket &bucket) {
    return bucket.quantised() ? 1 : vescomm_type_get_bytes(bucket.type);
}

std::int64_t transfer_elements(const Bucket &bucket, int position) {
    if (bucket.replicated) return 0;
    return bucket.quantised() ? static_cast<std::int64_t>(bucket.code_bytes(position))
                              : bucket.shard(position);
}

std::vector<std::int64_t> part_elements(const Mesh &mesh, const Bucket &bucket) {
    if (bucket.kind() == UnitKind::experts) {
        std::vector<std::int64_t> shards;
        for (int position = 0; position < mesh.shard_ranks; position += bucket.expert_ranks)
            shards.push_back(transfer_elements(bucket, position));
        return shards;
    }
    std::vector<std::int64_t> parts(static_cast<std::size_t>(mesh.gather_ranks()), 0);
    for (int position = 0; position < mesh.shard_ranks; ++position)
        parts[static_cast<std::size_t>(position / mesh.part_positions())] +=
            transfer_elements(bucket, position);
    return parts;
}

std::uint64_t part_bytes(const Mesh &mesh, const Bucket &bucket, int position) {
    std::int64_t elements = 0;
    if (bucket.kind() == UnitKind::experts) {
        elements = transfer_elements(bucket, position);
    } else {
        const int first = mesh.part(position) * mesh.part_positions();
        for (int shard = first; shard < first + mesh.part_positions(); ++shard)
            elements += transfer_elements(bucket, shard);
    }
    return static_cast<std::uint64_t>(elements) * transfer_bytes(bucket);
}

bool is_converted(const Bucket &bucket) {
    return bucket.quantised() || bucket.type != bucket.master_type;
}

std::uint64_t converted_bytes(const ModelPlan &plan, std::size_t slot, int position) {
    std::uint64_t largest = 0;
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit) {
        if (!plan.slot_ranges[unit].has(static_cast<int>(slot))) continue;
        std::uint64_t bytes = 0;
        for (const std::size_t index : plan.of_unit[unit]) {
            const Bucket &bucket = plan.buckets[index];
            if (is_converted(bucket))
                bytes +=
                    align_bucket(static_cast<std::uint64_t>(transfer_elements(bucket, position)) *
                                 transfer_bytes(bucket));
        }
        largest = std::max(largest, bytes);
    }
    return largest;
}

std::vector<std::uint64_t> dense_copy_bytes(const ModelPlan &plan) {
    const Mesh &mesh = plan.mesh;
    std::vector<std::uint64_t> copies(static_cast<std::size_t>(mesh.secondary_ranks), 0);
    if (copies.empty()) return copies;
    for (const Bucket &bucket : plan.buckets) {
        if (bucket.kind() == UnitKind::experts) continue;
        const std::vector<std::int64_t> parts = part_elements(mesh, bucket);
        for (std::size_t part = 0; part < parts.size(); ++part)
            copies[part] +=
                align_bucket(static_cast<std::uint64_t>(parts[part]) * transfer_bytes(bucket));
    }
    return copies;
}

std::uint64_t copy_bytes(const ModelPlan &plan, const std::vector<std::uint64_t> &dense_copies,
                         int position) {
    const Mesh &mesh = plan.mesh;
    if (mesh.secondary_ranks == 0) return 0;
    std::uint64_t bytes = dense_copies[static_cast<std::size_t>(mesh.part(position))];
    for (const Bucket &bucket : plan.buckets)
        if (bucket.kind() == UnitKind::experts)
            bytes += align_bucket(part_bytes(mesh, bucket, position));
    return bytes;
}

std::uint64_t secondary_bytes(const ModelPlan &plan, const std::vector<std::uint64_t> &dense_copies,
                              int position) {
    if (plan.mesh.secondary_ranks == 0) return 0;
    std::uint64_t bytes = copy_bytes(plan, dense_copies, position);
    for (std::size_t slot = 0; slot < plan.slots.size(); ++slot)
        bytes += converted_bytes(plan, slot, position);
    return bytes;
}

}  // namespace vescomm::fsdp
