// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/mesh.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

constexpr vescomm_fsdp_placement_t shard = VESCOMM_FSDP_SHARD;
constexpr vescomm_fsdp_placement_t replicate = VESCOMM_FSDP_REPLICATE;
constexpr vescomm_fsdp_placement_t partial = VESCOMM_FSDP_PARTIAL;

// The use of an axis, in the words of the ZeRO paper. zero3_partial: zero3 that sends gradients
// once a step.
enum class Role { replicas, zero1, zero2, zero3, zero3_partial, count };

std::optional<Role> role_of(const Axis &axis) {
    // Replicas sum their gradients once a step, so that they are partial until then.
    if (axis.parameters == replicate && axis.gradients != shard && axis.optimizer == replicate)
        return Role::replicas;
    if (axis.optimizer != shard) return std::nullopt;
    if (axis.parameters == replicate && axis.gradients == partial) return Role::zero1;
    if (axis.parameters == replicate && axis.gradients == shard) return Role::zero2;
    if (axis.parameters == shard && axis.gradients == shard) return Role::zero3;
    if (axis.parameters == shard && axis.gradients == partial) return Role::zero3_partial;
    return std::nullopt;
}

// Axes of the role `next` may follow axes of the role `role`, towards consecutive ranks. Two axes
// that shard are one, unless the outer one keeps secondary copies: it replicates parameters that
// the inner one shards.
bool may_follow(Role role, Role next) {
    return role == next || role == Role::replicas || (role == Role::zero2 && next == Role::zero3);
}

// Returns the number behind the colon of "hsdp:4".
int size_of(const std::string &preset, std::size_t colon) {
    int size = 0;
    const char *end = preset.data() + preset.size();
    const char *begin = preset.data() + colon + 1;
    const auto [rest, error] = std::from_chars(begin, end, size);
    if ((error == std::errc::result_out_of_range && *begin != '-') || size > max_ranks)
        refuse("the number of ranks in preset \"{}\" is too large; it must be at most {}", preset,
               max_ranks);
    if (error != std::errc() || rest != end || size < 1)
        refuse("preset \"{}\" needs a number of ranks of at least 1 behind the colon", preset);
    return size;
}

}  // namespace

void check_axes(const std::vector<Axis> &axes) {
    const Axis *open = nullptr;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        const Axis &axis = axes[i];
        const std::optional<Role> role = role_of(axis);
        if (!role)
            throw Failure(
                VESCOMM_ERROR_UNSUPPORTED,
                fmt::format("axis \"{}\" has placements {}, {}, {} of parameters, gradients and "
                            "optimizer; an axis has replicas (1, 1, 1 or 1, 2, 1), or shards the "
                            "optimizer with placements 0, 0, 0 or 0, 2, 0 or 1, 0, 0 or 1, 2, 0",
                            axis.name, axis.parameters, axis.gradients, axis.optimizer));
        if (i > 0 && !may_follow(*role_of(axes[i - 1]), *role))
            throw Failure(
                VESCOMM_ERROR_UNSUPPORTED,
                fmt::format("axis \"{}\" has placements {}, {}, {} behind axis \"{}\" with {}, {}, "
                            "{}; add axes of replicas (1, 1, 1 or 1, 2, 1) first, then axes that "
                            "shard and have the same placements, or 1, 0, 0 and then 0, 0, 0",
                            axis.name, axis.parameters, axis.gradients, axis.optimizer,
                            axes[i - 1].name, axes[i - 1].parameters, axes[i - 1].gradients,
                            axes[i - 1].optimizer));
        if (axis.size != 0) continue;
        if (open != nullptr)
            refuse("axes \"{}\" and \"{}\" both have size 0; give one of them", open->name,
                   axis.name);
        open = &axis;
    }
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

void set_axes(Mesh &mesh, const std::vector<Axis> &axes) {
    std::int64_t named = 1;  // product of the sizes that are given
    bool open = false;  // one size is not given
    for (const Axis &axis : axes) {
        if (axis.size == 0) open = true;
        else if (named <= mesh.ranks)  // a larger product divides no number of ranks
            named *= axis.size;
    }
    if (mesh.ranks % named != 0 || (!open && named != mesh.ranks))
        refuse("the axes need {}{} ranks, and there are {}", open ? "a multiple of " : "", named,
               mesh.ranks);
    constexpr auto roles = static_cast<std::size_t>(Role::count);
    std::array<int, roles> ranks;  // by role
    ranks.fill(1);
    std::array<bool, roles> has{};
    for (const Axis &axis : axes) {
        const auto role = static_cast<std::size_t>(*role_of(axis));
        ranks[role] *= axis.size > 0 ? axis.size : static_cast<int>(mesh.ranks / named);
        has[role] = true;
    }
    const auto of = [](Role role) { return static_cast<std::size_t>(role); };
    mesh.shard_ranks = mesh.ranks / ranks[of(Role::replicas)];
    if (has[of(Role::zero2)] && has[of(Role::zero3)]) mesh.secondary_ranks = ranks[of(Role::zero3)];
    else if (!has[of(Role::zero3)] && !has[of(Role::zero3_partial)]) mesh.keep_parameters = true;
    if (has[of(Role::zero1)] || has[of(Role::zero3_partial)]) mesh.keep_gradients = true;
}

// The option and the axes both give the size of the groups.
void set_secondary_ranks(Mesh &mesh, const Spec &spec) {
    const int wanted = spec.options().reshard_ranks;
    if (wanted == 0 && mesh.secondary_ranks == 0) return;
    if (mesh.secondary_ranks > 0 && wanted > 0 && wanted != mesh.secondary_ranks)
        refuse(
            "reshard_ranks is {}, and axis \"{}\" has {} ranks, with those of the same placements "
            "before it; leave one of them out",
            wanted, spec.axes().back().name, mesh.secondary_ranks);
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

void require_ranks(int ranks) {
    if (ranks < 1 || ranks > max_ranks)
        refuse("the number of ranks is {}; it must be at least 1 and at most {}", ranks, max_ranks);
}

Mesh make_mesh(const Spec &spec, int ranks) {
    require_ranks(ranks);
    Mesh mesh;
    mesh.ranks = mesh.shard_ranks = ranks;
    mesh.keep_parameters = spec.options().keep_gathered != 0;
    mesh.keep_gradients = spec.options().keep_gradients != 0;
    if (!spec.axes().empty()) set_axes(mesh, spec.axes());
    const bool has_replicas =
        !spec.axes().empty() && role_of(spec.axes().front()) == Role::replicas;
    // Sums over replicas are f32: rounding would cost precision and save nothing.
    if (spec.options().reduce_type != 0 && mesh.shard_ranks == 1 && has_replicas)
        refuse(
            "reduce_type is {} and no axis shards, so no gradients would travel in 8 bits; set "
            "reduce_type to 0, or use zero1, zero2, zero3, or hsdp:K or mics:K with K of at "
            "least 2",
            spec.options().reduce_type);
    set_secondary_ranks(mesh, spec);
    set_expert_ranks(mesh, spec);
    return mesh;
}

}  // namespace vescomm::fsdp
