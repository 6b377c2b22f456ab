// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Compares the specification of all ranks before anything is allocated.
#include <bit>
#include <concepts>
#include <optional>
#include <string>
#include <utility>

#include "fsdp/engine/device/support.h"
#include "fsdp/engine/engine.h"
#include "fsdp/hash.h"
#include "planner/formats/element_types.h"

namespace vescomm::fsdp {

namespace {

// The values that ranks compare. Only whole numbers of 64 bits.
struct Summary {
    std::uint64_t planned = 0;  // 1: this rank has a plan
    std::uint64_t options = 0;  // hash of options and axes
    std::uint64_t units = 0;  // number of units
    std::uint64_t model = 0;  // hash of all units
    std::uint64_t groups = 0;  // hash of all groups
};

std::uint64_t hash_of_text(const std::string &text) {
    return hash_of(text.data(), text.size());
}

std::uint64_t hash_of_all(const std::vector<std::uint64_t> &values) {
    return hash_of(values.data(), values.size() * sizeof(std::uint64_t));
}

// A value that ranks compare, as the bits of 64: of an integer, or of a double.
struct Option {
    template <std::integral Integer>
    Option(std::string name, Integer value)
        : name(std::move(name)),
          bits(static_cast<std::uint64_t>(static_cast<std::int64_t>(value))) {}
    Option(std::string name, double value)
        : name(std::move(name)), bits(std::bit_cast<std::uint64_t>(value)), kind(Kind::real) {}
    // A type of elements; 0: none.
    static Option of_type(std::string name, vescomm_type_t value) {
        Option made(std::move(name), value);
        made.kind = Kind::type;
        return made;
    }

    std::string text_of(std::uint64_t value) const {
        if (kind == Kind::real) return fmt::format("{}", std::bit_cast<double>(value));
        if (kind == Kind::integer) return fmt::format("{}", static_cast<std::int64_t>(value));
        if (value == 0) return "none";
        return std::string(formats::name_of(static_cast<vescomm_type_t>(value)));
    }

    enum class Kind { integer, real, type };
    std::string name;
    std::uint64_t bits;
    Kind kind = Kind::integer;
};

std::vector<Option> options_of(const Spec &spec) {
    const vescomm_fsdp_spec_options_t &o = spec.options();
    const vescomm_planner_options_t &p = spec.planner();
    return {
        Option::of_type("compute_type", o.compute_type),
        Option::of_type("gradient_type", o.gradient_type),
        {"slots", o.slots},
        {"gradient_slots", o.gradient_slots},
        {"order", o.order},
        {"keep_gathered", o.keep_gathered},
        {"keep_gradients", o.keep_gradients},
        {"average", o.average},
        {"seed", o.seed},
        Option::of_type("gather_type", o.gather_type),
        {"gather_block", o.gather_block},
        Option::of_type("reduce_type", o.reduce_type),
        {"partner_copy", o.partner_copy},
        {"reshard_ranks", o.reshard_ranks},
        {"large_unit_bytes", o.large_unit_bytes},
        {"expert_ranks", o.expert_ranks},
        {"expert_divisor", o.expert_divisor},
        {"memory", o.memory},
        {"offload_to_host", o.offload_to_host},
        Option::of_type("master_type", o.master_type),
        {"master_rounding", o.master_rounding},
        {"planner->mode", p.mode},
        {"planner->start_alignment", p.start_alignment},
        {"planner->cut_alignment", p.cut_alignment},
        {"planner->shard_limit", p.shard_limit},
        {"planner->search_steps", p.search_steps},
        {"planner->unit_imbalance", p.unit_imbalance},
        {"planner->work", p.work},
        {"planner->bytes_per_second", p.bytes_per_second},
        {"planner->seconds_per_collective", p.seconds_per_collective},
        {"planner->seconds_per_unequal", p.seconds_per_unequal},
        {"the number of axes", spec.axes().size()},
    };
}

std::vector<std::uint64_t> bits_of(const std::vector<Option> &options) {
    std::vector<std::uint64_t> bits;
    for (const Option &option : options) bits.push_back(option.bits);
    return bits;
}

std::vector<std::uint64_t> hashes_of_axes(const Spec &spec) {
    std::vector<std::uint64_t> hashes;
    for (const Axis &axis : spec.axes())
        hashes.push_back(
            hash_of_text(fmt::format("{} {} {} {} {};", axis.name, axis.size, axis.parameters,
                                     axis.gradients, axis.optimizer)));
    return hashes;
}

std::vector<std::uint64_t> hashes_of_groups(const Spec &spec) {
    std::vector<std::string> texts;
    for (const Group &group : spec.groups()) {
        std::string &text = texts.emplace_back(
            fmt::format("{} {} {};", group.kind.name, group.settings.size(), group.block_elements));
        text.append(reinterpret_cast<const char *>(group.settings.data()), group.settings.size());
        for (const Group::State &state : group.states)
            text += fmt::format("{} {} {};", state.name, state.type, state.per_block);
    }
    for (std::size_t id = 0; id < spec.parameters().size(); ++id)
        if (const auto group = spec.parameters()[id].group) texts[*group] += fmt::format("{};", id);
    std::vector<std::uint64_t> hashes;
    for (const std::string &text : texts) hashes.push_back(hash_of_text(text));
    return hashes;
}

// With the hashes of parts.
std::uint64_t hash_of_all(const std::vector<Option> &options,
                          const std::vector<std::uint64_t> &more) {
    std::vector<std::uint64_t> all = bits_of(options);
    all.insert(all.end(), more.begin(), more.end());
    return hash_of_all(all);
}

std::uint64_t hash_of_options(const Spec &spec) {
    return hash_of_all(options_of(spec), hashes_of_axes(spec));
}

std::vector<Option> options_of(const Unit &unit) {
    return {
        {"the flag VESCOMM_FSDP_EXPERTS", unit.experts},
        {"the flag VESCOMM_FSDP_KEEP_GATHERED", unit.kept},
        {"the number of its parameters", unit.parameters.size()},
    };
}

// Without the extents of the shape.
std::vector<Option> options_of(const Parameter &parameter) {
    return {
        {"type", parameter.type},
        {"gather_type", parameter.gather_type},
        {"batch_dimensions", parameter.batch_dimensions},
        {"block_rows", parameter.block_rows},
        {"block_elements", parameter.block_elements},
        {"flags", parameter.flags},
        {"tied_to", parameter.tied_to ? static_cast<std::int64_t>(*parameter.tied_to) : -1},
        {"the number of dimensions", parameter.whole_shape().size()},
    };
}

std::vector<Option> extents_of(const Parameter &parameter) {
    std::vector<Option> extents;
    for (const std::int64_t extent : parameter.whole_shape())
        extents.emplace_back(fmt::format("shape[{}]", extents.size()), extent);
    return extents;
}

std::uint64_t hash_of_parameter(const Parameter &parameter) {
    std::vector<std::uint64_t> more = bits_of(extents_of(parameter));
    more.push_back(hash_of_text(parameter.name));
    return hash_of_all(options_of(parameter), more);
}

std::vector<std::uint64_t> hashes_of_parameters(const Spec &spec, const Unit &unit) {
    std::vector<std::uint64_t> hashes;
    for (const std::size_t id : unit.parameters)
        hashes.push_back(hash_of_parameter(spec.parameters()[id]));
    return hashes;
}

std::uint64_t hash_of_unit(const Spec &spec, const Unit &unit) {
    std::vector<std::uint64_t> more = hashes_of_parameters(spec, unit);
    more.push_back(hash_of_text(unit.name));
    return hash_of_all(options_of(unit), more);
}

template <typename Value>
std::vector<Value> gather(vescomm_comm_t *comm, const std::vector<Value> &mine, int ranks) {
    std::vector<Value> all(mine.size() * ranks);
    check(vescomm_all_gather(comm, mine.data(), all.data(),
                             static_cast<std::int64_t>(mine.size() * sizeof(Value) / 8),
                             VESCOMM_U64, nullptr, nullptr, nullptr));
    return all;
}

// The place at which the values of a rank differ from those of rank 0.
struct Difference {
    int rank;
    std::size_t position;
    std::uint64_t of_first, of_rank;
};

// The first one. All ranks have as many values.
std::optional<Difference> find_difference(vescomm_comm_t *comm,
                                          const std::vector<std::uint64_t> &mine, int ranks) {
    const std::vector<std::uint64_t> all = gather(comm, mine, ranks);
    for (std::size_t i = mine.size(); i < all.size(); ++i)
        if (const std::size_t position = i % mine.size(); all[i] != all[position])
            return Difference{static_cast<int>(i / mine.size()), position, all[position], all[i]};
    return std::nullopt;
}

Failure differ(int rank, const std::string &what) {
    return Failure(VESCOMM_ERROR_MISMATCH,
                   fmt::format("the specifications of ranks 0 and {} differ "
                               "in {}; use the same on every rank",
                               rank, what));
}

// A rank whose specification differs from that of rank 0, and what differs.
struct Named {
    int rank;
    std::string what;
};

// Names the first option that differs, with its values. All ranks have as many options.
std::optional<Named> find_different(vescomm_comm_t *comm, const std::vector<Option> &options,
                                    int ranks) {
    if (options.empty()) return std::nullopt;
    const auto found = find_difference(comm, bits_of(options), ranks);
    if (!found) return std::nullopt;
    const Option &option = options[found->position];
    return Named{found->rank, fmt::format("{}, which is {} on rank 0 and {} on rank {}",
                                          option.name, option.text_of(found->of_first),
                                          option.text_of(found->of_rank), found->rank)};
}

// Returns an error that names the first option that differs and its values, if one does.
std::optional<Failure> compare_options(vescomm_comm_t *comm, const std::vector<Option> &options,
                                       int ranks) {
    const auto found = find_different(comm, options, ranks);
    return found ? std::optional(differ(found->rank, found->what)) : std::nullopt;
}

// Names a parameter of a unit that differs. All ranks have as many.
std::optional<Named> find_different_parameter(vescomm_comm_t *comm, const Spec &spec,
                                              const Unit &unit, int ranks) {
    if (unit.parameters.empty()) return std::nullopt;
    const auto found = find_difference(comm, hashes_of_parameters(spec, unit), ranks);
    if (!found) return std::nullopt;
    const Parameter &parameter = spec.parameters()[unit.parameters[found->position]];
    const std::string name =
        fmt::format("parameter {}, which is \"{}\" here", found->position, parameter.name);
    auto detail = find_different(comm, options_of(parameter), ranks);
    if (!detail) detail = find_different(comm, extents_of(parameter), ranks);
    if (!detail) return Named{found->rank, name};
    return Named{detail->rank, name + ": " + detail->what};
}

// Returns an error that names a unit that differs, and what differs in it.
Failure find_different_unit(vescomm_comm_t *comm, const Spec &spec,
                            const std::vector<std::uint64_t> &hashes, int ranks) {
    // All ranks have as many units.
    const auto found = find_difference(comm, hashes, ranks).value();
    const Unit &unit = spec.units()[found.position];
    const std::string name =
        fmt::format("unit {}, which is \"{}\" here", found.position, unit.name);
    auto detail = find_different(comm, options_of(unit), ranks);
    if (!detail) detail = find_different_parameter(comm, spec, unit, ranks);
    if (!detail) return differ(found.rank, name);
    return differ(detail->rank, name + ": " + detail->what);
}

// Returns an error that names an option or axis that differs.
Failure find_different_option(vescomm_comm_t *comm, const Spec &spec, int ranks) {
    if (auto failure = compare_options(comm, options_of(spec), ranks)) return *failure;
    // All ranks have as many axes.
    const auto found = find_difference(comm, hashes_of_axes(spec), ranks).value();
    return differ(found.rank, fmt::format("axis {}, which is \"{}\" here", found.position,
                                          spec.axes()[found.position].name));
}

// Returns an error that names a group that differs.
Failure find_different_group(vescomm_comm_t *comm, const Spec &spec, int ranks) {
    if (auto failure =
            compare_options(comm, {{"the number of groups", spec.groups().size()}}, ranks))
        return *failure;
    const auto found = find_difference(comm, hashes_of_groups(spec), ranks).value();
    return differ(found.rank,
                  fmt::format("settings or states of group {}, whose kind is \"{}\" here",
                              found.position, spec.groups()[found.position].kind.name));
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
    if (other(&Summary::options) > 0) return find_different_option(comm, spec, ranks);
    if (const int rank = other(&Summary::units)) return differ(rank, "the number of units");
    // All ranks have as many units. Parameters in no group of the program make one more.
    if (other(&Summary::model) > 0) return find_different_unit(comm, spec, units, ranks);
    if (other(&Summary::groups) > 0) return find_different_group(comm, spec, ranks);
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
        device::require_support(model.spec);
        for (const Unit &unit : model.spec.units()) {
            model.unit_names.push_back(unit.name);
            units.push_back(hash_of_unit(model.spec, unit));
        }
        mine = {1, hash_of_options(model.spec), units.size(), hash_of_all(units),
                hash_of_all(hashes_of_groups(model.spec))};
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
