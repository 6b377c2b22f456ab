// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The events that a rank has announced, as a hash that ranks compare. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace vescomm::fsdp {

enum class Event : std::uint64_t {
    create,
    initialise,
    begin,
    pre_forward,
    post_forward,
    pre_backward,
    post_backward,
    unshard,
    reshard,
    parameter,
    gradient,
    push_gradient,
    begin_backward,
    finish_backward,
    norm,
    scale,
    step,
    set_group,
    save,
    load,
    check_replicas,
    progress,
    wait_stream,
    update,  // of a unit, within a step; not announced
    free,
};

// "pre_forward"
const char *name_of(Event event);

// Arguments of events whose last values ranks announce, for error sentences.
enum class Argument : std::uint64_t {
    flags,  // of begin
    factor,  // of scale
    learning_rate_scale,  // of step
    max_norm,
    loss_scale,
};
constexpr std::size_t argument_count = 5;

// An event with its unit, for error sentences. 0: none.
using PackedEvent = std::uint64_t;
// Number of the last events that ranks announce.
constexpr std::size_t recent_events = 8;

// The announcement of a rank. Only whole numbers of 64 bits, which one all_gather moves.
struct Announcement {
    std::uint64_t hash = 0;  // of all events so far
    std::uint64_t arguments = 0;  // hash of their arguments
    std::uint64_t count = 0;  // of events
    std::uint64_t event = 0;  // the last one
    std::uint64_t unit = 0;  // of the last one; no_unit if it has none
    std::uint64_t initialisations = 0;  // events of this kind, in which ranks do not meet
    std::array<std::uint64_t, argument_count> values{};  // of arguments, as double
    std::array<PackedEvent, recent_events> recent{};  // event n, from 1, is recent[n % 8]
};

constexpr std::uint64_t no_unit = ~std::uint64_t{0};

class EventLog {
public:
    // `detail`: an argument that must be the same on every rank.
    void note(Event event, std::uint64_t unit = no_unit, std::uint64_t detail = 0);
    // An argument of the last event that must be the same on every rank.
    void note(Argument argument, double value);
    const Announcement &now() const { return now_; }

private:
    void mix_argument(std::uint64_t value);

    Announcement now_;
};

// Returns "" if all ranks announced the same, or a sentence that names two ranks and their events.
// `unit_names` has one name for each unit.
std::string compare(std::span<const Announcement> of_ranks,
                    std::span<const std::string> unit_names);

// "pre_forward of unit "block.0""
std::string describe(Event event, std::uint64_t unit, std::span<const std::string> unit_names);

}  // namespace vescomm::fsdp
