// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/redistribution.h"

#include <algorithm>
#include <utility>

#include "fsdp/error.h"
#include "planner/formats/element_types.h"

namespace vescomm::fsdp {

Survivors::Survivors(const Mesh &old_mesh, std::vector<Holding> holdings)
    : mesh_(old_mesh), holdings_(std::move(holdings)) {}

bool Survivors::own(int provider, int position) const {
    return this->position(provider) == position;
}

int Survivors::provider(int position, int receiver) const {
    const auto copied = [&](int rank) {
        const std::int64_t of = holdings_[rank].copied_rank;
        return of >= 0 && mesh_.position(static_cast<int>(of)) == position;
    };
    if (own(receiver, position) || copied(receiver)) return receiver;
    const int ranks = static_cast<int>(holdings_.size());
    for (int rank = 0; rank < ranks; ++rank)
        if (own(rank, position)) return rank;
    for (int rank = 0; rank < ranks; ++rank)
        if (copied(rank)) return rank;
    return -1;
}

std::int64_t Survivors::generation() const {
    std::int64_t largest = 0;
    for (const Holding &holding : holdings_) largest = std::max(largest, holding.generation);
    return largest;
}

std::string Survivors::failed_ranks() const {
    std::string list;
    for (int rank = 0; rank < mesh_.ranks; ++rank)
        if (std::ranges::none_of(holdings_, [&](const Holding &h) { return h.rank == rank; }))
            list += (list.empty() ? "" : ", ") + std::to_string(rank);
    return list.empty() ? "none" : list;
}

std::string Survivors::different_folders() const {
    for (std::size_t rank = 0; rank < holdings_.size(); ++rank)
        if (holdings_[rank].folder != holdings_.front().folder)
            return fmt::format(
                "ranks 0 and {} of the survivors have passed different folders of checkpoints, or "
                "one of them none; pass the same vescomm_fsdp_recovery_t.folder on every rank",
                rank);
    return "";
}

std::string Survivors::ranks_at(int position) const {
    std::string list;
    for (int rank = 0; rank < mesh_.ranks; ++rank)
        if (mesh_.position(rank) == position)
            list += (list.empty() ? "rank " : ", rank ") + std::to_string(rank);
    return list;
}

std::string Survivors::missing() const {
    for (const Holding &holding : holdings_)
        if (holding.complete == 0 || holding.generation != holdings_.front().generation)
            return "a rank failed while parameters were initialised, loaded or updated, so the "
                   "shards of the survivors are not of one step";
    for (int position = 0; position < mesh_.shard_ranks; ++position)
        if (provider(position, 0) < 0)
            return fmt::format("no survivor has the shard of {}; the failed ranks are {} of {}",
                               ranks_at(position), failed_ranks(), mesh_.ranks);
    return "";
}

std::vector<Segment> segments_of(const ModelPlan &from, const ModelPlan &to, std::size_t unit,
                                 const Survivors &survivors) {
    std::vector<Segment> segments;
    for (int rank = 0; rank < to.mesh.ranks; ++rank)
        for (const std::size_t index : to.of_unit[unit])
            for (const auto &piece : to.buckets[index].pieces(to.mesh.position(rank))) {
                const ParameterPlace &at = *from.parameter_places[piece.parameter];
                const Bucket &bucket = from.buckets[at.bucket];
                if (bucket.replicated) {  // every survivor has the parameter
                    segments.push_back({piece.parameter, piece.first, piece.elements,
                                        survivors.position(rank), rank, rank});
                    continue;
                }
                const Place &place = bucket.places[at.place];
                for (int position = 0; position < from.mesh.shard_ranks; ++position) {
                    const std::int64_t before = bucket.elements_before(place, position);
                    const auto in_parameter = [&](std::int64_t cut) {
                        return before +
                               std::clamp<std::int64_t>(cut - place.offset, 0, place.elements);
                    };
                    const std::int64_t first =
                        std::max(piece.first, in_parameter(bucket.begin(position)));
                    const std::int64_t end =
                        std::min(piece.first + piece.elements, in_parameter(bucket.end(position)));
                    if (first >= end) continue;
                    segments.push_back({piece.parameter, first, end - first, position,
                                        survivors.provider(position, rank), rank});
                }
            }
    return segments;
}

void require_same_values(const Spec &before, const Spec &after) {
    // Counters of units go on, and the engine on host memory gives its values.
    if (!std::ranges::equal(before.units(), after.units(), {}, &Unit::name, &Unit::name))
        refuse("the units of the specification are not those of the engine; pass the same model");
    if (before.options().memory != after.options().memory)
        refuse("the memory of the specification is not that of the engine; pass the same");
    if (before.options().master_type != after.options().master_type)
        refuse(
            "masters are {} in the specification and {} in the engine; pass the same master_type",
            formats::name_of(after.options().master_type),
            formats::name_of(before.options().master_type));
    if (before.parameters().size() != after.parameters().size())
        refuse(
            "the specification has {} parameters, and that of the engine {}; pass the same model",
            after.parameters().size(), before.parameters().size());
    const auto states = [](const Spec &spec, const Parameter &parameter) {
        return parameter.group ? spec.groups()[*parameter.group].states
                               : std::vector<Group::State>();
    };
    for (std::size_t id = 0; id < before.parameters().size(); ++id) {
        const Parameter &a = before.parameters()[id];
        const Parameter &b = after.parameters()[id];
        const auto differs = [&](const char *what) {
            refuse(
                "parameter {} is \"{}\" in the engine and \"{}\" in the specification, and their "
                "{} differ; pass the same model",
                id, before.full_name(id), after.full_name(id), what);
        };
        if (before.full_name(id) != after.full_name(id)) differs("names");
        if (a.whole_shape() != b.whole_shape()) differs("shapes");
        if (a.flags != b.flags || a.tied_to != b.tied_to) differs("flags");
        if (states(before, a) != states(after, b)) differs("states of the optimizer");
        const bool per_block =
            std::ranges::any_of(states(before, a), [](auto &state) { return state.per_block; });
        if (per_block &&
            before.groups()[*a.group].block_elements != after.groups()[*b.group].block_elements)
            differs("blocks of the optimizer");
    }
}

}  // namespace vescomm::fsdp
