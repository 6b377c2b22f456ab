// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/mesh.h"

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
        // A mesh of one or two axes: replicas outside, shards inside.
        const bool in_place = i == 0 || (i == 1 && replicates(axes[0]) && shards(axes[1]));
        if (known && in_place) continue;
        throw Failure(
            VESCOMM_ERROR_UNSUPPORTED,
            fmt::format("axis \"{}\" has placements {}, {}, {} at position {}; a mesh is "
                        "one axis that replicates everything, then one that shards the "
                        "optimizer, or one of them",
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
    }
    refuse("there is no preset \"{}\"; use ddp, zero1, zero2, zero3, hsdp:K or mics:K", preset);
}

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
    return mesh;
}

}  // namespace vescomm::fsdp
