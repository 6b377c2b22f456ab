// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/nodes.h"

#include <algorithm>
#include <map>

namespace vescomm::internal {

namespace {

template <typename Key>
std::vector<int> number_by_first(std::span<const Key> keys) {
    std::map<Key, int> seen;
    std::vector<int> numbers;
    numbers.reserve(keys.size());
    for (const Key &key : keys)
        numbers.push_back(seen.emplace(key, static_cast<int>(seen.size())).first->second);
    return numbers;
}

}  // namespace

Nodes Nodes::from_names(std::span<const std::string> names) {
    return from_numbers(number_by_first(names));
}

Nodes Nodes::from_numbers(std::span<const int> node_of) {
    Nodes nodes;
    nodes.node_of_ = number_by_first(node_of);
    for (int rank = 0; rank < nodes.ranks(); ++rank) {
        const auto node = static_cast<std::size_t>(nodes.node_of_[rank]);
        if (node == nodes.members_.size()) nodes.members_.emplace_back();
        nodes.local_rank_.push_back(static_cast<int>(nodes.members_[node].size()));
        nodes.members_[node].push_back(rank);
    }
    return nodes;
}

Nodes Nodes::from_sizes(std::span<const int> sizes) {
    std::vector<int> node_of;
    for (std::size_t node = 0; node < sizes.size(); ++node)
        node_of.insert(node_of.end(), sizes[node], static_cast<int>(node));
    return from_numbers(node_of);
}

int Nodes::smallest() const {
    int smallest = ranks();
    for (const std::vector<int> &members : members_)
        smallest = std::min(smallest, static_cast<int>(members.size()));
    return smallest;
}

int Nodes::largest() const {
    int largest = 0;
    for (const std::vector<int> &members : members_)
        largest = std::max(largest, static_cast<int>(members.size()));
    return largest;
}

Nodes Nodes::single(int ranks) {
    return from_numbers(std::vector<int>(ranks, 0));
}

}  // namespace vescomm::internal
