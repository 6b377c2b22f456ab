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

// Equal shards, as place() fills them.
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

// Shards of at most `largest` elements, each cut as late as it can be, as possible() does.
//
// Where items lie in the buffer, as opposed to here, depends only on which lie before them: each
// adds its elements and its padding. Not so if tensors have alignments of their own; then their
// greatest common divisor is used, which makes no layout impossible, but may find too many.
class RaggedFiller : public Filler {
public:
    // `kinds` is borrowed.
    RaggedFiller(std::span<const Kind> kinds, std::int64_t largest);

    std::int64_t shard() const override { return largest_; }
    std::int64_t padding(std::size_t kind) const override { return paddings_[kind]; }

    std::int64_t end(std::size_t kind, std::int64_t cursor) override;
    std::int64_t shortest(std::size_t kind) const override;

private:
    // Where the end lies when `begin` elements of the item lie before its first whole shard.
    std::int64_t end_after(std::size_t kind, std::int64_t begin);

    std::span<const Kind> kinds_;
    std::int64_t largest_;
    std::vector<std::int64_t> paddings_;
    std::vector<std::int64_t> whole_blocks_;  // elements of them in a shard, for each kind
    // What end_after() found for restarting grids, which take a step for each shard.
    std::vector<std::unordered_map<std::int64_t, std::int64_t>> known_;
};

}  // namespace vescomm::planner
