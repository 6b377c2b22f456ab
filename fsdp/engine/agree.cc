// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Compares the specification of all ranks before anything is allocated.
#include <optional>

#include "fsdp/engine/device/support.h"
#include "fsdp/engine/engine.h"
#include "fsdp/hash.h"

namespace vescomm::fsdp {

namespace {

// The values that ranks compare. Only whole numbers of 64 bits.
struct Summary {
    std::uint64_t planned = 0;  // 1: this rank has a plan
    std::uint64_t options = 0;  // hash of options, axes and groups
    std::uint64_t units = 0;  // number of units
    std::uint64_t model = 0;  // hash of all units
};

std::uint64_t hash_of_text(const std::string &text) {
    return hash_of(text.data(), text.size());
}

std::uint64_t hash_of_options(const Spec &spec) {
    const vescomm_fsdp_spec_options_t &o = spec.options();
    const vescomm_planner_options_t &p = spec.planner();
    std::string text = fmt::format(
        "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}; {} {} {} {} {} {} {} {} "
        "{} {};",
        o.compute_type, o.gradient_type, o.slots, o.gradient_slots, o.order, o.keep_gathered,
        o.keep_gradients, o.average, o.seed, o.gather_type, o.gather_block, o.reduce_type,
        o.partner_copy, o.reshard_ranks, o.large_unit_bytes, o.expert_ranks, o.expert_divisor,
        o.memory, o.offload_to_host, o.master_type, o.master_rounding, p.mode, p.start_alignment,
        p.cut_alignment, p.shard_limit, p.search_steps, p.unit_imbalance, p.work,
        p.bytes_per_second, p.seconds_per_collective, p.seconds_per_unequal);
    for (const Axis &axis : spec.axes())
        text += fmt::format("{} {} {} {} {};", axis.name, axis.size, axis.parameters,
                            axis.gradients, axis.optimizer);
    for (const Group &group : spec.groups()) {
        text +=
            fmt::format("{} {} {};", group.kind.name, group.settings.size(), group.block_elements);
        text.append(reinterpret_cast<const char *>(group.settings.data()), group.settings.size());
        for (const Group::State &state : group.states)
            text += fmt::format("{} {} {};", state.name, state.type, state.per_block);
    }
    return hash_of_text(text);
}

std::uint64_t hash_of_unit(const Spec &spec, std::size_t unit) {
    std::string text = spec.units()[unit].name + (spec.units()[unit].experts ? "; experts" : "") +
                       (spec.units()[unit].kept ? "; kept" : "");
    for (const std::size_t id : spec.units()[unit].parameters) {
        const Parameter &p = spec.parameters()[id];
        const auto number = [](const std::optional<std::size_t> &value) {
            return value ? static_cast<std::int64_t>(*value) : -1;
        };
        text += fmt::format(";{} {} {} {} {} {} {} {} {}", p.name, p.type, p.gather_type,
                            p.batch_dimensions, p.block_rows, p.block_elements, p.flags,
                            number(p.tied_to), number(p.group));
        for (const std::int64_t extent : p.whole_shape()) text += fmt::format(" {}", extent);
    }
    return hash_of_text(text);
}

template <typename Value>
std::vector<Value> gather(vescomm_comm_t *comm, const std::vector<Value> &mine, int ranks) {
    std::vector<Value> all(mine.size() * ranks);
    check(vescomm_all_gather(comm, mine.data(), all.data(),
                             static_cast<std::int64_t>(mine.size() * sizeof(Value) / 8),
                             VESCOMM_U64, nullptr, nullptr, nullptr));
    return all;
}

// Returns an error that names the first unit that differs between ranks 0 and `other`.
Failure find_difference(vescomm_comm_t *comm, const Spec &spec,
                        const std::vector<std::uint64_t> &units, int ranks, std::size_t other) {
    const std::vector<std::uint64_t> all = gather(comm, units, ranks);
    for (std::size_t unit = 0; unit < units.size(); ++unit)
        if (all[other * units.size() + unit] != all[unit])
            return Failure(VESCOMM_ERROR_MISMATCH,
                           fmt::format("the specifications of ranks 0 and {} differ in unit {}, "
                                       "which is \"{}\" here; use the same on every rank",
                                       other, unit, spec.units()[unit].name));
    return Failure(VESCOMM_ERROR_MISMATCH, "the specifications of ranks differ");
}

// Returns the error of all ranks, or nothing if they agree.
std::optional<Failure> compare_with_all(vescomm_comm_t *comm, const Spec &spec, const Summary &mine,
                                        const std::vector<std::uint64_t> &units, int ranks) {
    const std::vector<Summary> all = gather(comm, std::vector{mine}, ranks);
    for (int rank = 0; rank < ranks; ++rank)
        if (all[rank].planned == 0)
            return Failure(
                VESCOMM_ERROR_MISMATCH,
                fmt::format("rank {} cannot create the engine; its error says why", rank));
    // The first rank whose value differs from that of rank 0; 0: none.
    const auto other = [&](std::uint64_t Summary::*value) {
        for (int rank = 1; rank < ranks; ++rank)
            if (all[rank].*value != all[0].*value) return rank;
        return 0;
    };
    const auto differ = [&](const char *what, int rank) {
        return Failure(VESCOMM_ERROR_MISMATCH,
                       fmt::format("the {} of the specifications of ranks 0 and {} differ; use the "
                                   "same on every rank",
                                   what, rank));
    };
    if (const int rank = other(&Summary::options)) return differ("options, axes or groups", rank);
    if (const int rank = other(&Summary::units)) return differ("numbers of units", rank);
    // All ranks have the same number of units, which they gather.
    if (const int rank = other(&Summary::model))
        return find_difference(comm, spec, units, ranks, static_cast<std::size_t>(rank));
    return std::nullopt;
}

}  // namespace

std::optional<Model> agree_on_model(const Spec &spec, const Communicator &world,
                                    std::optional<Failure> &refusal) {
    const int ranks = world.ranks();
    Model model{spec, {}, {}};
    Summary mine;
    std::vector<std::uint64_t> units;
    try {
        model.spec.complete();
        model.plan = plan_model(model.spec, ranks);
        device::require_support(model.spec, model.plan);
        for (std::size_t unit = 0; unit < model.spec.units().size(); ++unit) {
            model.unit_names.push_back(model.spec.units()[unit].name);
            units.push_back(hash_of_unit(model.spec, unit));
        }
        mine = {1, hash_of_options(model.spec), units.size(),
                hash_of(units.data(), units.size() * sizeof(units[0]))};
    } catch (const Failure &error) {
        // A rank without a plan reports it to the others, which would wait for it.
        refusal = error;
    }
    const auto verdict = compare_with_all(world.get(), model.spec, mine, units, ranks);
    if (!verdict) return model;
    if (!refusal) refusal = verdict;
    return std::nullopt;
}

}  // namespace vescomm::fsdp
