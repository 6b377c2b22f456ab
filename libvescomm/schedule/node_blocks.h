// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/chunks.h"
#include "schedule/extent.h"
#include "topology/nodes.h"

namespace vescomm::internal {

inline std::int64_t elements_of(const std::vector<Extent> &extents) {
    std::int64_t elements = 0;
    for (const Extent &extent : extents) elements += extent.count;
    return elements;
}

// The n-th of `slices` equal slices of the elements in `extents`.
inline std::vector<Extent> slice_of(const std::vector<Extent> &extents, int n, int slices) {
    const std::int64_t elements = elements_of(extents);
    const std::int64_t begin = slice_begin(elements, n, slices);
    const std::int64_t end = slice_begin(elements, n + 1, slices);
    std::vector<Extent> slice;
    std::int64_t passed = 0;
    for (const Extent &extent : extents) {
        const std::int64_t from = std::max(begin, passed);
        const std::int64_t to = std::min(end, passed + extent.count);
        if (from < to) slice.push_back({extent.begin + from - passed, to - from});
        passed += extent.count;
    }
    return slice;
}

// The joined shards of consecutive nodes, for algorithms whose phases pass on the shards of 1, 2,
// 4, ... nodes. Node numbers wrap round.
class NodeBlocks {
public:
    NodeBlocks(const Nodes &nodes, std::span<const std::int64_t> cuts)
        : nodes_(nodes), cuts_(cuts) {
        for (int node = 0; node < nodes.count(); ++node) {
            std::int64_t elements = 0;
            for (const int rank : nodes.members(node)) elements += cuts[rank + 1] - cuts[rank];
            before_.push_back(before_.back() + elements);
        }
    }

    int phases() const { return std::bit_width(static_cast<unsigned>(nodes_.count() - 1)); }
    // Number of nodes whose shards a node sends in a phase.
    int sent(int phase) const { return std::min(1 << phase, nodes_.count() - (1 << phase)); }
    int wrap(int node) const { return (node + nodes_.count()) % nodes_.count(); }

    // Elements of `count` nodes from `first` on.
    std::int64_t elements(int first, int count) const {
        const int begin = wrap(first), end = begin + count;
        if (end <= nodes_.count()) return before_[end] - before_[begin];
        return before_.back() - before_[begin] + before_[end - nodes_.count()];
    }
    // Extents of `count` nodes from `first` on, in the order of the vector, merged. Cost: O(ranks
    // of these nodes), and a sort if ranks are placed cyclically.
    std::vector<Extent> extents(int first, int count) const {
        std::vector<Extent> shards;
        for (int node = first; node < first + count; ++node)
            for (const int rank : nodes_.members(wrap(node)))
                if (cuts_[rank + 1] > cuts_[rank])
                    add(shards, {cuts_[rank], cuts_[rank + 1] - cuts_[rank]});
        if (std::ranges::is_sorted(shards, {}, &Extent::begin)) return shards;
        std::ranges::sort(shards, {}, &Extent::begin);
        std::vector<Extent> merged;
        for (const Extent &shard : shards) add(merged, shard);
        return merged;
    }

private:
    static void add(std::vector<Extent> &extents, const Extent &next) {
        if (!extents.empty() && extents.back().begin + extents.back().count == next.begin)
            extents.back().count += next.count;
        else extents.push_back(next);
    }

    const Nodes &nodes_;
    std::span<const std::int64_t> cuts_;
    std::vector<std::int64_t> before_{0};  // by node: elements of all previous nodes
};

}  // namespace vescomm::internal
