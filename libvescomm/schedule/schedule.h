// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vescomm {

// Where bytes can be. The ranks of a node map one another's `buffer`, `stage` and `partial`, and
// other nodes put into them; `source` and `output` are the caller's own arrays, which only their
// own rank can touch.
enum class Region : std::uint8_t {
    source,  // what the caller contributes
    buffer,  // a fused buffer: elements of a layout
    output,  // what the caller gets
    staging,  // elements on their way
    partial,  // partial sums, of the type in which sums are accumulated
};
inline constexpr int regions = 5;

// An element of a region of a rank. Offsets count elements.
struct Place {
    int rank = 0;
    Region region = Region::buffer;
    std::int64_t offset = 0;
    bool operator==(const Place &) const = default;
};

// The place so many elements after another one.
inline Place later(Place place, std::int64_t elements) {
    place.offset += elements;
    return place;
}

enum class Action : std::uint8_t {
    acquire,  // wait until every rank of this node has released the buffer, or the staging buffer;
              // of a message, until the one that had its box before is through
    copy,  // from -> to, converting where the regions' types differ
    reduce,  // combine all sources -> to; with `finish` the result is scaled
    put,  // from -> to in a peer's memory, and then raise `flag` there; where `value` is 0, as a
          // part of the put to the same peer that follows
    signal,  // raise `flag`: at `peer`, or at all of this node
    wait,  // until `peer` has raised `flag` to `value`
};

// Flags below this are for algorithms; the others say what was called, how often the staging buffer
// was let go (on this node; to others, advertised_flag), and open the gate between two schedules
// (then()).
inline constexpr std::uint32_t algorithm_flags = 5;
inline constexpr std::uint32_t release_flag = 6;
inline constexpr std::uint32_t gate_flag = 7;
// Lies before the first byte of the staging buffer, in the same line of cache. Once in a schedule
// it may be raised for the node, when all is in the staging buffer.
inline constexpr std::uint32_t inline_flag = 8;

// A signal for all ranks of the node.
inline constexpr int whole_node = -1;
// No rank.
inline constexpr int no_rank = -1;

// Of what passes through third ranks, how many places there are at each of them (Step::relay), for
// each rank there is. Nodes so unequal that more were needed would leave most of them empty.
inline constexpr int places_for_each = 2;

// One thing that one rank does. Flags are counters: each (raising rank, flag) only ever rises, and
// within a node everyone sees it at once.
struct Step {
    Action action = Action::wait;
    bool finish = false;
    // Of a signal: the peer need not hear of it, for it puts without waiting. Of its wait, right
    // before a put of its lane: the put may come early, and is kept until the flag is raised.
    bool eager = false;
    // Of a signal to a rank of another node, or a wait for one: only if a rank of this node wants
    // something of that one (Schedule::wants).
    bool conditional = false;
    int peer = whole_node;
    // Of bytes that pass through a third rank: for whom a put is, or from whom it comes for which
    // this is a wait. They have to agree on what was called.
    int final_peer = no_rank;
    // Where the third rank finds what the two ends have called: of a put, that of its other end; of
    // a wait that is conditional, those of all ranks of the node in a row.
    std::uint32_t relay = 0;
    std::uint32_t flag = 0;
    std::uint32_t value = 0;
    std::int64_t count = 0;  // elements
    Place to = {};
    Place from = {};  // the first source
    // Of a reduction: further sources, in Lane::sources().
    std::uint32_t more_begin = 0;
    std::uint32_t more = 0;

    bool moves() const {
        return action == Action::copy || action == Action::reduce || action == Action::put;
    }
    bool operator==(const Step &) const = default;
};

// Steps in order: each starts when the one before it is done, except that a put is done as soon as
// it is handed over.
class Lane {
public:
    void acquire() { steps_.push_back({.action = Action::acquire}); }
    // Waits until the message before, to or from `peer`, is through here and, unless `value` is 0,
    // until the peer has raised `flag` as far as that message says by its own value.
    void take_slot(int peer, std::uint32_t flag, std::uint32_t value) {
        steps_.push_back({.action = Action::acquire, .peer = peer, .flag = flag, .value = value});
    }
    void copy(Place from, Place to, std::int64_t count) {
        if (count > 0)
            steps_.push_back({.action = Action::copy, .count = count, .to = to, .from = from});
    }
    // In the order of `from`, of which there is at least one: contributions come before partial
    // sums, of which one may be the first of all.
    void reduce(std::span<const Place> from, Place to, std::int64_t count, bool finish);
    void put(Place from, Place to, std::int64_t count, std::uint32_t flag, std::uint32_t value) {
        steps_.push_back({.action = Action::put,
                          .peer = to.rank,
                          .flag = flag,
                          .value = value,
                          .count = count,
                          .to = to,
                          .from = from});
    }
    void signal_node(std::uint32_t flag, std::uint32_t value) {
        steps_.push_back({.action = Action::signal, .flag = flag, .value = value});
    }
    void signal(int peer, std::uint32_t flag, std::uint32_t value, bool eager = false) {
        steps_.push_back(
            {.action = Action::signal, .eager = eager, .peer = peer, .flag = flag, .value = value});
    }
    void wait(int peer, std::uint32_t flag, std::uint32_t value, bool eager = false) {
        steps_.push_back(
            {.action = Action::wait, .eager = eager, .peer = peer, .flag = flag, .value = value});
    }

    void put_through(Place from, Place to, std::int64_t count, std::uint32_t flag,
                     std::uint32_t value, int receiver, std::uint32_t relay) {
        put(from, to, count, flag, value);
        steps_.back().final_peer = receiver;
        steps_.back().relay = relay;
    }
    void wait_through(int peer, std::uint32_t flag, std::uint32_t value, int sender) {
        wait(peer, flag, value);
        steps_.back().final_peer = sender;
    }
    void signal_conditional(int peer, std::uint32_t flag, std::uint32_t value, bool eager) {
        signal(peer, flag, value, eager);
        steps_.back().conditional = true;
    }
    void wait_conditional(int peer, std::uint32_t flag, std::uint32_t value, std::uint32_t relay) {
        wait(peer, flag, value);
        steps_.back().conditional = true;
        steps_.back().relay = relay;
    }

    const std::vector<Step> &steps() const { return steps_; }
    std::vector<Step> &steps() { return steps_; }
    // Of a reduction, after the first.
    std::span<const Place> more(const Step &step) const {
        return std::span(more_).subspan(step.more_begin, step.more);
    }
    // All that a step reads.
    std::vector<Place> sources(const Step &step) const;
    bool operator==(const Lane &) const = default;

private:
    std::vector<Step> steps_;
    std::vector<Place> more_;
};

// Whether the first source of a reduction is a partial sum to which contributions are added.
inline bool starts_with_sum(std::span<const Place> from) {
    return from.size() > 1 && from[0].region == Region::partial &&
           from[1].region != Region::partial;
}

// What one rank does in one collective. A plain value: printable, comparable, provable (check.h).
// Lanes run side by side and meet through flags; the collective is complete on this rank when all
// of them are at their end and every put has left.
struct Schedule {
    std::vector<Lane> lanes;
    // Elements of this rank's stage and partial sums.
    std::int64_t staging = 0;
    std::int64_t partial = 0;
    // By rank: whether something of a rank of another node is to come to this one by way of its
    // neighbours, who cannot know (Step::conditional). They are told when the staging buffer is
    // acquired. Empty: nobody asks.
    std::vector<std::uint8_t> receive_mask;

    bool operator==(const Schedule &) const = default;
};

// One line for each step.
std::string describe(const Schedule &schedule);
std::string describe(const Lane &lane, const Step &step);
std::string describe(const Place &place);

// `second` after `first`, on the same flags, for one rank: the lanes of `second` start when lane 0
// of `first` is at its end. Every rank must do the same. The two must not share places in the
// staging buffer or among the partial sums.
Schedule then(int rank, Schedule first, const Schedule &second);

}  // namespace vescomm
