// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/report/partial_sums.h"

#include <algorithm>
#include <set>

#include "fsdp/error.h"
#include "fsdp/spec/partners.h"

namespace vescomm::fsdp {

namespace {

using Buckets = std::vector<std::size_t>;

// The buckets whose requests use a part of a gradient slot. Sums in 8 bits, and those of replicated
// parameters, are no requests on the memory of the slot.
Buckets summed_in(const ModelPlan &plan, std::size_t slot, std::size_t part) {
    Buckets buckets;
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit) {
        if (!plan.gradient_slot_ranges[unit].has(static_cast<int>(slot))) continue;
        std::size_t number = 0;
        for (const std::size_t index : plan.of_unit[unit]) {
            const Bucket &bucket = plan.buckets[index];
            if (!bucket.trainable || number++ != part) continue;
            if (bucket.gathered() && !bucket.sums_quantised()) buckets.push_back(index);
        }
    }
    return buckets;
}

// Bytes of partial sums of requests for the buckets, which share them.
std::uint64_t bytes_for(const ModelPlan &plan, const Buckets &buckets, const SummingRanks &ranks) {
    std::map<vescomm_type_t, std::vector<Layout>> by_type;
    for (const std::size_t index : buckets)
        by_type[plan.buckets[index].gradient_type].push_back(plan.buckets[index].layout());
    std::uint64_t largest = 0;
    for (const auto &[type, layouts] : by_type) {
        std::vector<const vescomm_layout_t *> handles;
        for (const Layout &layout : layouts) handles.push_back(layout.get());
        vescomm_request_options_t options = vescomm_request_options_init();
        options.output = &largest;  // sums leave the slots
        std::uint64_t bytes = 0;
        check(vescomm_reduce_scatter_v_get_partial_bytes(
            ranks.comm, ranks.members.empty() ? nullptr : ranks.members.data(),
            ranks.nodes.empty() ? nullptr : ranks.nodes.data(), handles.data(), handles.size(),
            type, &options, &bytes));
        largest = std::max(largest, bytes);
    }
    return largest;
}

}  // namespace

std::vector<std::vector<std::uint64_t>> partial_sum_bytes(const ModelPlan &plan,
                                                          const SummingRanks &dense,
                                                          const SummingRanks &experts) {
    std::map<std::pair<UnitKind, Buckets>, std::uint64_t> known;
    std::vector<std::vector<std::uint64_t>> bytes(plan.gradient_slots.size());
    for (std::size_t slot = 0; slot < bytes.size(); ++slot) {
        const UnitKind kind = plan.kind_of_gradient_slot(slot);
        for (std::size_t part = 0; part < plan.gradient_slot_parts[slot].size(); ++part) {
            const auto [found, is_new] =
                known.try_emplace({kind, summed_in(plan, slot, part)}, std::uint64_t{0});
            if (is_new)
                found->second =
                    bytes_for(plan, found->first.second, kind == UnitKind::dense ? dense : experts);
            bytes[slot].push_back(found->second);
        }
    }
    return bytes;
}

Placement Placement::of(const vescomm_fsdp_report_t &asked, int ranks) {
    if (asked.node_ranks < 0) refuse("node_ranks is {}; it must be at least 0", asked.node_ranks);
    if (asked.comm != nullptr && asked.nodes == nullptr)
        refuse("comm is given without nodes; give the node of each rank too");
    if (asked.nodes != nullptr) return Placement({asked.nodes, asked.nodes + ranks}, asked.comm);
    if (asked.node_ranks == 0 || asked.node_ranks >= ranks) return {};
    std::vector<std::int32_t> node_of;
    for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank / asked.node_ranks);
    return Placement(std::move(node_of));
}

int Placement::distance_to_holder() const {
    return node_of_.empty() ? 1 : partner_distance(node_of_);
}

std::vector<int> Placement::distinct_groups(const Mesh &mesh) const {
    std::vector<int> firsts;
    std::set<std::vector<int>> seen;
    for (int first = 0; first < mesh.ranks; first += mesh.shard_ranks) {
        // Nodes are numbered anew in each group, in the order of their ranks.
        std::map<std::int32_t, int> numbers;
        std::vector<int> pattern;
        for (int rank = first; rank < first + mesh.shard_ranks && !node_of_.empty(); ++rank)
            pattern.push_back(
                numbers.try_emplace(node(rank), static_cast<int>(numbers.size())).first->second);
        if (seen.insert(std::move(pattern)).second) firsts.push_back(first);
        if (node_of_.empty()) break;
    }
    return firsts;
}

SummingRanks Placement::summing(const Mesh &mesh, int rank, UnitKind kind) const {
    if (node_of_.empty()) return {};
    const int first = mesh.group(rank) * mesh.shard_ranks;
    const int stride = kind == UnitKind::experts ? mesh.expert_ranks : 1;
    SummingRanks ranks;
    for (int position = kind == UnitKind::experts ? mesh.expert_index(rank) : 0;
         position < mesh.shard_ranks; position += stride) {
        if (comm_ != nullptr) ranks.members.push_back(first + position);
        else ranks.nodes.push_back(node(first + position));
    }
    ranks.comm = comm_;
    return ranks;
}

std::uint64_t PredictedPartialSums::bytes(int rank) {
    const Mesh &mesh = plan_.mesh;
    const auto [known, is_new] =
        known_.try_emplace({mesh.group(rank), mesh.expert_index(rank)}, std::uint64_t{0});
    if (!is_new) return known->second;
    for (const auto &slot :
         partial_sum_bytes(plan_, placement_.summing(mesh, rank, UnitKind::dense),
                           placement_.summing(mesh, rank, UnitKind::experts)))
        for (const std::uint64_t part : slot) known->second += part;
    return known->second;
}

}  // namespace vescomm::fsdp
