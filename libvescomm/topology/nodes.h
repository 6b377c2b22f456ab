// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

namespace vescomm::internal {

// The assignment of ranks to nodes. A plain value, the same on every rank. Nodes are numbered in
// the order of their lowest ranks. The ranks of a node need not be consecutive, and nodes may have
// different sizes.
class Nodes {
public:
    // names[r] is the name of the node of rank r.
    static Nodes from_names(std::span<const std::string> names);
    // node_of[r] is any number that identifies the node of rank r.
    static Nodes from_numbers(std::span<const int> node_of);
    // sizes[n] consecutive ranks on node n.
    static Nodes from_sizes(std::span<const int> sizes);
    static Nodes single(int ranks);

    int ranks() const { return static_cast<int>(node_of_.size()); }
    int count() const { return static_cast<int>(members_.size()); }
    int node_of(int rank) const { return node_of_[rank]; }
    int local_rank(int rank) const { return local_rank_[rank]; }
    // The ranks of a node, ascending.
    std::span<const int> members(int node) const { return members_[node]; }
    // Numbers of ranks on the smallest and on the largest node.
    int smallest() const;
    int largest() const;
    bool together(int a, int b) const { return node_of_[a] == node_of_[b]; }

    bool operator==(const Nodes &) const = default;

private:
    std::vector<int> node_of_;
    std::vector<int> local_rank_;
    std::vector<std::vector<int>> members_;
};

}  // namespace vescomm::internal
