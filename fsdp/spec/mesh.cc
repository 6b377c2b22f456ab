// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/mesh.h"

#include <algorithm>
#include <charconv>

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

constexpr vescomm_fsdp_placement_t shard = VESCOMM_FSDP_SHARD;
constexpr vescomm_fsdp_placement_t replicate = VESCOMM_FSDP_REPLICATE;
constexpr vescomm_fsdp_placement_t partial = VESCOMM_FSDP_PARTIAL;

bool shards(const Axis &axis) {
    return axis.optimizer == shard && ((axis.parameters == shard && axis.gradients == shard) ||
                                       (axis.parameters == replicate &&
                                        (axis.gradients == shard || axis.gradients == partial)));
}

bool replicates(const Axis &axis) {
    return axis.parameters == replicate && axis.gradients == replicate &&
           axis.optimizer == replicate;
}

// The outer axis of a mesh with secondary copies, inside of which every axis shards.
bool copies(const Axis &axis) {
    return axis.parameters == replicate && axis.gradients == shard && axis.optimizer == shard;
}

bool shards_all(const Axis &axis) {
    return axis.parameters == shard && axis.gradients == shard && axis.optimizer == shard;
}

bool is_copy_mesh(const std::vector<Axis> &axes) {
    return axes.size() == 2 && copies(axes[0]) && shards_all(axes[1]);
}

// Returns the number behind the colon of "hsdp:4".
int size_of(const std::string &preset, std::size_t colon) {
    int size = 0;
    const char *end = preset.data() + preset.size();
    const auto [rest, error] = std::from_chars(preset.data() + colon + 1, end, size);
    if (error != std::errc() || rest != end || size < 1)
        refuse("preset \"{}\" needs a number of ranks of at least 1 behind the colon", preset);
    return size;
}

}  // namespace

void check_axes(const std::vector<Axis> &axes) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
        const bool known = shards(axes[i]) || replicates(axes[i]);
        // A mesh of one or two axes: replicas or copies outside, shards inside.
        const bool in_place =
            i == 0 || (i == 1 && axes.size() == 2 &&
                       ((replicates(axes[0]) && shards(axes[1])) || is_copy_mesh(axes)));
        if (known && in_place) continue;
        throw Failure(
            VESCOMM_ERROR_UNSUPPORTED,
            fmt::format("axis \"{}\" has placements {}, {}, {} at position {}; a mesh is "
                        "one axis that replicates everything, then one that shards the "
                        "optimizer; or one that replicates the parameters alone, then one that "
                        "shards everything; or one of them",
                        axes[i].name, axes[i].parameters, axes[i].gradients, axes[i].optimizer, i));
    }
    if (axes.size() == 2 && axes[0].size == 0 && axes[1].size == 0)
        refuse("axes \"{}\" and \"{}\" both have size 0; give one of them", axes[0].name,
               axes[1].name);
}

std::vector<Axis> axes_of_preset(const std::string &preset) {
    if (preset == "ddp") return {{"replica", 0, replicate, replicate, replicate}};
    if (preset == "zero1") return {{"shard", 0, replicate, partial, shard}};
    if (preset == "zero2") return {{"shard", 0, replicate, shard, shard}};
    if (preset == "zero3") return {{"shard", 0, shard, shard, shard}};
    const std::size_t colon = preset.find(':');
    if (colon != std::string::npos) {
        const std::string name = preset.substr(0, colon);
        if (name == "hsdp" || name == "mics")
            return {{"replica", 0, replicate, replicate, replicate},
                    {"shard", size_of(preset, colon), shard, shard, shard}};
        if (name == "hpz")
            return {{"copy", 0, replicate, shard, shard},
                    {"group", size_of(preset, colon), shard, shard, shard}};
    }
    refuse("there is no preset \"{}\"; use ddp, zero1, zero2, zero3, hsdp:K, mics:K or hpz:K",
           preset);
}

namespace {

// The option and the axes both give the size of the groups.
void set_secondary_ranks(Mesh &mesh, const Spec &spec) {
    const int wanted = spec.options().reshard_ranks;
    if (wanted == 0 && mesh.secondary_ranks == 0) return;
    if (mesh.secondary_ranks > 0 && wanted > 0 && wanted != mesh.secondary_ranks)
        refuse("reshard_ranks is {}, and axis \"{}\" has {} ranks; leave one of them out", wanted,
               spec.axes().back().name, mesh.secondary_ranks);
    if (wanted > 0) mesh.secondary_ranks = wanted;
    if (mesh.keep_parameters)
        refuse(
            "units stay gathered until the step, so that they are not resharded into groups of {} "
            "ranks; leave out keep_gathered and use zero3 or hsdp:K, or leave out reshard_ranks "
            "and hpz:K",
            mesh.secondary_ranks);
    if (mesh.shard_ranks % mesh.secondary_ranks != 0)
        refuse("reshard_ranks is {}; it must divide the {} ranks that shard a unit",
               mesh.secondary_ranks, mesh.shard_ranks);
    // A gather of the masters stays within the group.
    if (mesh.secondary_ranks == mesh.shard_ranks) mesh.secondary_ranks = 0;
}

void set_expert_ranks(Mesh &mesh, const Spec &spec) {
    const int wanted = spec.options().expert_ranks;
    if (std::ranges::none_of(spec.units(), &Unit::experts)) return;
    if (mesh.shard_ranks % wanted != 0)
        refuse(
            "expert_ranks is {}; it must divide the {} ranks that shard a unit: use zero1, zero2, "
            "zero3, or hsdp:K or mics:K with a multiple of {} as K",
            wanted, mesh.shard_ranks, wanted);
    if (wanted > 1 && mesh.secondary_ranks > 0)
        refuse(
            "expert_ranks is {}, and groups of {} ranks keep secondary copies, which experts do "
            "not have; use zero3 or hsdp:K instead of hpz:K, and leave out reshard_ranks",
            wanted, mesh.secondary_ranks);
    mesh.expert_ranks = wanted;
}

}  // namespace

Mesh make_mesh(const Spec &spec, int ranks) {
    if (ranks < 1) refuse("the number of ranks is {}; it must be at least 1", ranks);
    Mesh mesh;
    mesh.ranks = mesh.shard_ranks = ranks;
    mesh.keep_parameters = spec.options().keep_gathered != 0;
    mesh.keep_gradients = spec.options().keep_gradients != 0;
    std::int64_t named = 1;  // product of the sizes that are given
    for (const Axis &axis : spec.axes()) {
        if (axis.size > 0) named *= axis.size;
        if (axis.parameters == replicate) mesh.keep_parameters = true;
        if (axis.gradients == partial) mesh.keep_gradients = true;
    }
    const bool open =
        spec.axes().empty() || spec.axes().front().size == 0 || spec.axes().back().size == 0;
    if (ranks % named != 0 || (!open && named != ranks))
        refuse("the axes need {}{} ranks, and there are {}", open ? "a multiple of " : "", named,
               ranks);
    if (!spec.axes().empty()) {
        const Axis &last = spec.axes().back();
        if (spec.axes().size() == 1 && replicates(last)) {
            mesh.shard_ranks = 1;
        } else if (is_copy_mesh(spec.axes())) {
            mesh.secondary_ranks = last.size > 0 ? last.size : static_cast<int>(ranks / named);
        } else if (last.size > 0) {
            mesh.shard_ranks = last.size;
        } else {
            mesh.shard_ranks = static_cast<int>(ranks / named);
        }
        // Replicas outside of shards do not keep units gathered.
        if (spec.axes().size() == 2)
            mesh.keep_parameters =
                spec.options().keep_gathered != 0 || last.parameters == replicate;
        // Sums over replicas are f32: rounding would cost precision and save nothing.
        if (spec.options().reduce_type != 0 && mesh.shard_ranks == 1 &&
            replicates(spec.axes().front()))
            refuse(
                "reduce_type is {} and no axis shards, so no gradients would travel in 8 bits; set "
                "reduce_type to 0, or use zero1, zero2, zero3, or hsdp:K or mics:K with K of at "
                "least 2",
                spec.options().reduce_type);
    }
    set_secondary_ranks(mesh, spec);
    set_expert_ranks(mesh, spec);
    return mesh;
}

}  // namespace vescomm::fsdp
