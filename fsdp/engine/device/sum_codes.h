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

class SumCodes {
public:
    SumCodes(const ModelPlan &plan, int position);

    // The bytes of the block for each rank that shards a unit; empty: no gradients of the unit are
    // quantised.
    const std::vector<std::int64_t> &sent_blocks(std::size_t unit) const { return sent_[unit]; }
    // The same for the blocks of each rank.
    const std::vector<std::int64_t> &received_blocks(std::size_t unit) const {
        return received_[unit];
    }
    // The first byte of a shard of a bucket in the sent array.
    std::uint64_t sent_at(std::size_t bucket, std::size_t shard) const {
        return sent_at_[bucket][shard];
    }
    // The first byte of the own shard of a bucket in each received block.
    std::uint64_t received_at(std::size_t bucket) const { return received_at_[bucket]; }
    // The size of the arrays, which all units share.
    std::uint64_t sent_bytes() const { return sent_bytes_; }
    std::uint64_t received_bytes() const { return received_bytes_; }
    std::uint64_t bytes() const { return sent_bytes_ + received_bytes_; }

private:
    std::vector<std::vector<std::int64_t>> sent_, received_;  // by unit
    std::vector<std::vector<std::uint64_t>> sent_at_;  // by bucket and shard
    std::vector<std::uint64_t> received_at_;  // by bucket
    std::uint64_t sent_bytes_ = 0, received_bytes_ = 0;
};

}  // namespace vescomm::fsdp::device
