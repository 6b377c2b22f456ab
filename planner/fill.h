// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/kinds.h"
#include "planner/place.h"

namespace vescomm::planner {

// Fills equal shards as place() does.
class UniformFiller : public Filler {
public:
    // `kinds` is borrowed.
    UniformFiller(std::span<const Kind> kinds, const Shards &shards)
        : kinds_(kinds), shards_(shards) {}

    std::int64_t shard() const override { return shards_.shard; }
    std::int64_t end(std::size_t kind, std::int64_t cursor) override;
    std::int64_t padding(std::size_t) const override { return 0; }  // end() aligns starts
    std::int64_t shortest(std::size_t kind) const override { return kinds_[kind].item.elements(); }

private:
    std::span<const Kind> kinds_;
    Shards shards_;
};

// Fills shards of at most `largest` elements, each cut as late as possible, as possible() does.
//
// The offset of an item in the buffer is the sum of elements and padding of the items before it.
// This is exact only while all tensors have one alignment. Otherwise the greatest common divisor
// of the alignments is used: every possible layout is still found, but some orders that are found
// may not fit.
class RaggedFiller : public Filler {
public:
    // `kinds` is borrowed.
    RaggedFiller(std::span<const Kind> kinds, std::int64_t largest);

    std::int64_t shard() const override { return largest_; }
    std::int64_t padding(std::size_t kind) const override { return paddings_[kind]; }

    std::int64_t end(std::size_t kind, std::int64_t cursor) override;
    std::int64_t shortest(std::size_t kind) const override;

private:
    // Returns the distance to the end of the item from the start of its second shard; `begin`
    // elements of the item lie before that start.
    std::int64_t end_after(std::size_t kind, std::int64_t begin);

    std::span<const Kind> kinds_;
    std::int64_t largest_;
    std::vector<std::int64_t> paddings_;
    // For each kind: elements of the whole blocks that fit into one shard.
    std::vector<std::int64_t> whole_blocks_;
    // For each kind with a restarting grid: cached results of end_after(), which cost a step for
    // each shard.
    std::vector<std::unordered_map<std::int64_t, std::int64_t>> known_;
};

}  // namespace vescomm::planner
