// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory for partial sums of gradients: the engine allocates it with the gradient slots, and the
// report predicts it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// The ranks that sum gradients of one kind of units: those of a communicator, some of its ranks,
// or, as long as there is none, the node of each rank.
struct SummingRanks {
    const vescomm_comm_t *comm = nullptr;
    std::vector<std::int32_t> members = {};  // of comm; empty: all
    std::vector<std::int32_t> nodes = {};  // without comm; empty: one node
};

// Returns the bytes of each rank, by gradient slot and by part of the slot.
std::vector<std::vector<std::uint64_t>> partial_sum_bytes(const ModelPlan &plan,
                                                          const SummingRanks &dense,
                                                          const SummingRanks &experts);

// The nodes of ranks, which need not run yet.
class Placement {
public:
    // All ranks are on one node.
    Placement() = default;
    // `node_of`: by rank. `comm`: as vescomm_fsdp_report_t.comm.
    explicit Placement(std::vector<std::int32_t> node_of, const vescomm_comm_t *comm = nullptr)
        : node_of_(std::move(node_of)), comm_(comm) {}
    // The placement in a report. Throws Failure if it is invalid.
    static Placement of(const vescomm_fsdp_report_t &asked, int ranks);

    // As partner_distance() of the nodes.
    int distance_to_holder() const;
    // The first rank of each shard group, without groups that are on nodes as an earlier one is.
    std::vector<int> distinct_groups(const Mesh &mesh) const;
    // The ranks that sum gradients with this rank.
    SummingRanks summing(const Mesh &mesh, int rank, UnitKind kind) const;

private:
    std::int32_t node(int rank) const {
        return node_of_.empty() ? 0 : node_of_[static_cast<std::size_t>(rank)];
    }

    std::vector<std::int32_t> node_of_;  // empty: one node
    const vescomm_comm_t *comm_ = nullptr;
};

// The partial sums of any rank of a placement.
class PredictedPartialSums {
public:
    // The arguments must outlive this object.
    PredictedPartialSums(const ModelPlan &plan, const Placement &placement)
        : plan_(plan), placement_(placement) {}
    std::uint64_t bytes(int rank);

private:
    const ModelPlan &plan_;
    const Placement &placement_;
    std::map<std::pair<int, int>, std::uint64_t> known_;  // by shard group and expert index
};

}  // namespace vescomm::fsdp
