// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The places of codes of gradients that travel between devices. All buckets of a unit travel in one
// exchange, in a block for each rank that shards the unit:
//
//     sent       rank 0: bucket a │ bucket b ║ rank 1: bucket a │ bucket b ║ ...
//     received   the blocks of all ranks for this one, of equal size
//
// A bucket in a block has the codes and scales of one shard, as in fsdp/spec/gather_codes.h. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp::device {

// The same for all ranks. `position`: of one of them.
class SumCodes {
public:
    // `plan` must outlive the object.
    explicit SumCodes(const ModelPlan &plan);

    // The bytes of the block for each rank that shards a unit; empty: no gradients of the unit are
    // quantised.
    const std::vector<std::int64_t> &sent_blocks(std::size_t unit) const { return sent_[unit]; }
    // The same for the blocks that a position receives.
    std::vector<std::int64_t> received_blocks(std::size_t unit, int position) const;
    // The first byte of a shard of a bucket in the sent array.
    std::uint64_t sent_at(std::size_t bucket, std::size_t shard) const {
        return sent_at_[bucket][shard];
    }
    // The first byte of a shard of a bucket in its block.
    std::uint64_t block_at(std::size_t bucket, std::size_t shard) const {
        return sent_at_[bucket][shard] - sent_at_[first_[bucket]][shard];
    }
    // The size of the arrays, which all units share.
    std::uint64_t sent_bytes() const { return sent_bytes_; }
    std::uint64_t received_bytes(int position) const;
    std::uint64_t bytes(int position) const { return sent_bytes_ + received_bytes(position); }

private:
    // The number of the block of a position.
    std::size_t own_shard(std::size_t unit, int position) const;

    const ModelPlan &plan_;
    std::vector<std::vector<std::int64_t>> sent_;  // by unit
    std::vector<std::vector<std::uint64_t>> sent_at_;  // by bucket and shard
    std::vector<std::size_t> first_;  // by bucket: the first one of its blocks
    std::uint64_t sent_bytes_ = 0;
};

}  // namespace vescomm::fsdp::device
