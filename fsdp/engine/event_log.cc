// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/event_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "fsdp/hash.h"

namespace vescomm::fsdp {

const char *name_of(Event event) {
    static constexpr const char *names[] = {
        "create",         "initialise",      "begin",         "pre_forward",
        "post_forward",   "pre_backward",    "post_backward", "unshard",
        "reshard",        "parameter",       "gradient",      "push_gradient",
        "begin_backward", "finish_backward", "norm",          "scale",
        "step",           "set_group",       "save",          "load",
        "check_replicas", "progress",        "wait_stream",   "update",
        "free",
    };
    return names[static_cast<std::size_t>(event)];
}

namespace {

// The event in the lowest byte, and the unit.
PackedEvent packed(Event event, std::uint64_t unit) {
    return unit << 8 | (static_cast<std::uint64_t>(event) + 1);
}

}  // namespace

void EventLog::note(Event event, std::uint64_t unit, std::uint64_t detail) {
    now_.event = static_cast<std::uint64_t>(event);
    now_.unit = unit;
    ++now_.count;
    now_.recent[now_.count % recent_events] = packed(event, unit);
    if (event == Event::initialise) ++now_.initialisations;
    const std::uint64_t mixed[] = {now_.hash, now_.event, unit};
    now_.hash = hash_of(mixed, sizeof mixed);
    mix_argument(detail);
}

void EventLog::note(Argument argument, double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    now_.values[static_cast<std::size_t>(argument)] = bits;
    mix_argument(bits);
}

void EventLog::mix_argument(std::uint64_t value) {
    const std::uint64_t mixed[] = {now_.arguments, value};
    now_.arguments = hash_of(mixed, sizeof mixed);
}

namespace {

// The sentence about the arguments of the same events of two ranks; `rank` is that of `other`.
// `last`: describes the last event.
std::string differing_arguments(const Announcement &first, const Announcement &other,
                                std::size_t rank, const std::string &last) {
    struct Named {
        const char *name, *function;
    };
    static constexpr Named arguments[] = {
        {"flags", "begin"},   {"factor", "scale"},    {"learning_rate_scale", "step"},
        {"max_norm", "step"}, {"loss_scale", "step"},
    };
    for (std::size_t k = 0; k < argument_count; ++k)
        if (first.values[k] != other.values[k])
            return fmt::format(
                "{} of vescomm_fsdp_{}() is {} on rank 0 and {} on rank {}; use the same on every "
                "rank",
                arguments[k].name, arguments[k].function, std::bit_cast<double>(first.values[k]),
                std::bit_cast<double>(other.values[k]), rank);
    return fmt::format(
        "the arguments of ranks 0 and {} differ, of {} or an earlier event, such as "
        "vescomm_fsdp_scale() or vescomm_fsdp_set_group(); use the same on every rank",
        rank, last);
}

std::string describe_packed(PackedEvent packed, std::span<const std::string> unit_names) {
    const std::uint64_t unit = packed >> 8;
    return describe(static_cast<Event>((packed & 0xff) - 1), unit == no_unit >> 8 ? no_unit : unit,
                    unit_names);
}

// Two different events of two ranks that have the same number.
struct Difference {
    std::uint64_t number = 0;  // 0: there is none among the last events of both
    bool first = false;  // all events before are the same
};

Difference find_difference(const Announcement &a, const Announcement &b) {
    const std::uint64_t most = std::max(a.count, b.count);
    const std::uint64_t oldest = most > recent_events ? most - recent_events + 1 : 1;
    for (std::uint64_t number = oldest; number <= std::min(a.count, b.count); ++number)
        if (a.recent[number % recent_events] != b.recent[number % recent_events])
            return {number, number > oldest || oldest == 1};
    return {};
}

}  // namespace

std::string describe(Event event, std::uint64_t unit, std::span<const std::string> unit_names) {
    std::string text = name_of(event);
    if (unit < unit_names.size()) {
        text += " of unit \"" + unit_names[unit] + "\"";
    } else if (unit != no_unit) {
        text += " of unit " + std::to_string(unit);
    }
    return text;
}

std::string compare(std::span<const Announcement> of_ranks,
                    std::span<const std::string> unit_names) {
    const Announcement &first = of_ranks[0];
    const auto text = [&](const Announcement &one) {
        return describe(static_cast<Event>(one.event), one.unit, unit_names);
    };
    const auto initialises = [](const Announcement &one) {
        return static_cast<Event>(one.event) == Event::initialise;
    };
    for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
        const Announcement &other = of_ranks[rank];
        if (other.hash == first.hash && other.arguments == first.arguments) continue;
        if (other.initialisations != first.initialisations && !initialises(first) &&
            !initialises(other))
            return fmt::format(
                "rank 0 has called vescomm_fsdp_initialise() {} times since the engine was created "
                "or reset, before {}, and rank {} {} times before {}; call it on all ranks between "
                "the same events",
                first.initialisations, text(first), rank, other.initialisations, text(other));
        const auto sentence = [&](const std::string &of_first, const std::string &of_other,
                                  const std::string &numbers) {
            return fmt::format(
                "ranks announced different events: rank 0 {}, rank {} {}; announce the same events "
                "in the same order on every rank ({})",
                of_first, rank, of_other, numbers);
        };
        if (const auto found = find_difference(first, other); found.number > 0)
            return sentence(describe_packed(first.recent[found.number % recent_events], unit_names),
                            describe_packed(other.recent[found.number % recent_events], unit_names),
                            fmt::format("these are event {} of each{}", found.number,
                                        found.first ? "" : "; earlier ones may differ, too"));
        if (other.hash == first.hash) return differing_arguments(first, other, rank, text(first));
        const std::string numbers =
            fmt::format("event {} of rank 0, {} of rank {}", first.count, other.count, rank);
        if (other.event != first.event || other.unit != first.unit)
            return sentence(text(first), text(other), "these are " + numbers);
        return fmt::format(
            "the events of ranks 0 and {} differ before {} ({}); announce the same events in the "
            "same order on every rank",
            rank, text(first), numbers);
    }
    return "";
}

}  // namespace vescomm::fsdp
