// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The parts of a gather. Without secondary copies a part is the shard of one rank. With copies a
// group of ranks has all parts, and each part is the shards of several positions. For 6 ranks in
// groups of 2:
//
//     rank                 0   1   2   3   4   5
//     own shard            0   1   2   3   4   5
//     part with copies    012 345 012 345 012 345
//
// Parts are in the type in which a bucket travels: elements of its type, or bytes of its codes.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// Bytes of one element in transfer; 1 for codes.
std::uint64_t transfer_bytes(const Bucket &bucket);
// Elements of the shard of a position in transfer; 0 if the bucket is replicated.
std::int64_t transfer_elements(const Bucket &bucket, int position);
// Elements of each part. Parts of experts are their shards.
std::vector<std::int64_t> part_elements(const Mesh &mesh, const Bucket &bucket);
// Bytes of the part of the rank at a position.
std::uint64_t part_bytes(const Mesh &mesh, const Bucket &bucket, int position);

// True if a shard is converted before it is sent to other groups.
bool is_converted(const Bucket &bucket);
// Memory for the shards of a unit that are converted, of the largest unit that uses a slot.
std::uint64_t converted_bytes(const ModelPlan &plan, std::size_t slot, int position);
// Memory of the secondary copies of dense buckets, for each part. Empty without copies.
std::vector<std::uint64_t> dense_copy_bytes(const ModelPlan &plan);
// Memory of the secondary copies of a rank: its parts. 0 without copies. `dense_copies`: see
// dense_copy_bytes(), which takes longer than one rank of many.
std::uint64_t copy_bytes(const ModelPlan &plan, const std::vector<std::uint64_t> &dense_copies,
                         int position);
// The same, with converted shards of each slot.
std::uint64_t secondary_bytes(const ModelPlan &plan, const std::vector<std::uint64_t> &dense_copies,
                              int position);

}  // namespace vescomm::fsdp
