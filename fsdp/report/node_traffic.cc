// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/report/node_traffic.h"

#include <map>
#include <vector>

#include "fsdp/report/traffic.h"
#include "fsdp/spec/gather_parts.h"
#include "fsdp/spec/partners.h"

namespace vescomm::fsdp {

namespace {

// The ranks of one collective: how many there are on each node.
using Group = std::map<int, std::uint64_t>;

// Nodes that receive what another one has, if one node has it.
std::uint64_t other_nodes(const Group &group) {
    return group.size() - 1;
}

class StepTraffic {
public:
    StepTraffic(const Spec &spec, const ModelPlan &plan, int node_ranks)
        : spec_(spec), plan_(plan), mesh_(plan.mesh), node_ranks_(node_ranks) {}

    // `times`: gathers of each unit.
    std::uint64_t gathers(const std::vector<std::uint64_t> &times) const {
        std::uint64_t bytes = 0;
        for (const UnitKind kind : {UnitKind::dense, UnitKind::experts}) {
            std::uint64_t others = 0;
            for (const Group &group : groups([&](int rank) { return gather_group(kind, rank); }))
                others += other_nodes(group);
            for (const Bucket &bucket : plan_.buckets)
                if (bucket.kind() == kind && !bucket.replicated)
                    bytes += times[bucket.unit] * others *
                             (bucket.quantised() ? bucket.codes.bytes() : bucket.parameter_bytes());
        }
        return bytes;
    }

    // The first gather of a unit gives each shard to a rank of every group with a secondary copy.
    std::uint64_t fills(const std::vector<std::uint64_t> &times) const {
        if (mesh_.secondary_ranks == 0) return 0;
        std::uint64_t bytes = 0;
        for (int rank = 0; rank < mesh_.ranks; ++rank) {
            const int shard = mesh_.position(rank);
            const int part = shard / mesh_.part_positions();
            std::uint64_t elsewhere = 0;  // receivers on other nodes
            for (int first = 0; first < mesh_.shard_ranks; first += mesh_.secondary_ranks)
                if (node(rank - shard + first + part) != node(rank)) ++elsewhere;
            for (const Bucket &bucket : plan_.buckets)
                if (times[bucket.unit] > 0)
                    bytes += elsewhere * transfer_bytes(bucket) *
                             static_cast<std::uint64_t>(transfer_elements(bucket, shard));
        }
        return bytes;
    }

    // One sum of the gradients of each unit. A node sends f32 sums of its ranks.
    std::uint64_t sums() const {
        std::uint64_t bytes = 0;
        for (const UnitKind kind : {UnitKind::dense, UnitKind::experts}) {
            const auto all = groups([&](int rank) { return shard_group(kind, rank); });
            for (const Bucket &bucket : plan_.buckets) {
                if (bucket.kind() != kind || !bucket.trainable || bucket.replicated) continue;
                if (bucket.sums_quantised()) {
                    for (int rank = 0; rank < mesh_.ranks; ++rank)
                        bytes += bucket.code_bytes(mesh_.position(rank)) *
                                 ranks_elsewhere(all[shard_group(kind, rank)], rank);
                    continue;
                }
                for (const Group &group : all)
                    bytes += other_nodes(group) * sizeof(float) *
                             static_cast<std::uint64_t>(bucket.elements);
            }
        }
        return bytes;
    }

    // Sums over replicas: each node gives its sum, and takes the result. The replicas of replicated
    // parameters are all ranks.
    std::uint64_t replica_sums() const {
        const Group world = groups([](int) { return std::size_t{0}; }).front();
        const std::uint64_t replicated = replicated_gradient_bytes(plan_);
        std::uint64_t bytes = 2 * other_nodes(world) * replicated;
        if (mesh_.replicas() == 1) return bytes;
        const auto all =
            groups([&](int rank) { return static_cast<std::size_t>(mesh_.position(rank)); });
        for (int position = 0; position < mesh_.shard_ranks; ++position)
            bytes += 2 * other_nodes(all[static_cast<std::size_t>(position)]) *
                     (gradient_shard_bytes(plan_, position) - replicated);
        return bytes;
    }

    std::uint64_t partner_copies() const {
        if (!has_partner_copies(spec_, mesh_)) return 0;
        std::vector<int> node_of;
        for (int rank = 0; rank < mesh_.ranks; ++rank) node_of.push_back(node(rank));
        const int distance = partner_distance(node_of);
        std::uint64_t bytes = 0;
        for (int rank = 0; rank < mesh_.ranks; ++rank)
            if (node((rank + distance) % mesh_.ranks) != node(rank))
                bytes += gradient_shard_bytes(plan_, mesh_.position(rank));
        return bytes;
    }

private:
    int node(int rank) const { return rank / node_ranks_; }

    // The number of the group of a rank in gathers and sums of a kind of units.
    std::size_t shard_group(UnitKind kind, int rank) const {
        if (kind == UnitKind::dense) return static_cast<std::size_t>(mesh_.group(rank));
        return static_cast<std::size_t>(mesh_.group(rank) * mesh_.expert_ranks +
                                        mesh_.expert_index(rank));
    }
    std::size_t gather_group(UnitKind kind, int rank) const {
        if (kind == UnitKind::experts) return shard_group(kind, rank);
        return static_cast<std::size_t>(rank / mesh_.gather_ranks());
    }
    template <typename GroupOf>
    std::vector<Group> groups(GroupOf &&group_of) const {
        std::vector<Group> all;
        for (int rank = 0; rank < mesh_.ranks; ++rank) {
            const std::size_t number = group_of(rank);
            if (number >= all.size()) all.resize(number + 1);
            ++all[number][node(rank)];
        }
        return all;
    }
    std::uint64_t ranks_elsewhere(const Group &group, int rank) const {
        std::uint64_t ranks = 0;
        for (const auto &[where, count] : group)
            if (where != node(rank)) ranks += count;
        return ranks;
    }

    const Spec &spec_;
    const ModelPlan &plan_;
    const Mesh &mesh_;
    int node_ranks_;
};

}  // namespace

std::uint64_t node_bytes_per_step(const Spec &spec, const ModelPlan &plan, int node_ranks,
                                  int micro_batches) {
    const StepTraffic traffic(spec, plan, node_ranks);
    const auto gathers = gathers_per_step(spec, plan, micro_batches);
    const std::uint64_t sums =
        plan.mesh.keep_gradients ? 1 : static_cast<std::uint64_t>(micro_batches);
    return traffic.gathers(gathers) + traffic.fills(gathers) + sums * traffic.sums() +
           traffic.replica_sums() + traffic.partner_copies();
}

}  // namespace vescomm::fsdp
