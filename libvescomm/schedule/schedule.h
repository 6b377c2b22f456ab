// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/flags.h"

namespace vescomm::internal {

// A kind of memory. The ranks of a node map one another's `buffer`, `staging`, `partial` and
// `inlined`, and ranks of other nodes put into the first three. Only the rank itself accesses its
// `source` and `output`, which are the caller's arrays.
enum class Region : std::uint8_t {
    source,  // contributions of the caller
    buffer,  // a fused buffer: elements of a layout
    output,  // results for the caller
    staging,  // staging buffer: elements between two arrays
    partial,  // partial sums, in the accumulator type
    inlined,  // inline data, beside inline_flag
};
inline constexpr int regions = 6;

inline constexpr std::int64_t only_here = -1;

// One element of a region of one rank. Offsets count elements.
struct Place {
    int rank = 0;
    Region region = Region::buffer;
    std::int64_t offset = 0;
    // In the staging buffer of a local peer: the offset in the peer's array (Step::array), in an
    // all_to_all_v in its block for this rank, at which the same elements are. If that array is
    // registered, they are read there. only_here: nowhere else.
    std::int64_t registered = only_here;
    bool operator==(const Place &) const = default;
};

// The place `elements` after another one.
inline Place later(Place place, std::int64_t elements) {
    place.offset += elements;
    if (place.registered != only_here) place.registered += elements;
    return place;
}

enum class Action : std::uint8_t {
    acquire,  // wait until every rank of this node has released the buffer, or the slot of the
              // staging buffer. Sender of a message: until the previous message has left the eager
              // buffer; receiver: until the message of the receive has been found
    copy,  // from -> to, converting where the regions' types differ
    reduce,  // combine all sources -> to; with `finish` the result is scaled
    put,  // from -> to in the memory of a peer, then raise `flag` there; with value 0 it is a part
          // of the next put of its lane, which goes to the same peer
    signal,  // raise `flag`: at `peer`, or for all ranks of this node
    wait,  // until `peer` has raised `flag` to `value`
};

// Condition of a step. An array of the caller is registered if its local peers map it, and read it
// without a copy in the staging buffer (execute/registered_arrays.h).
enum class When : std::uint8_t {
    always,
    staged,  // only if this rank's array is not registered
    registered,  // only if it is
};

// `peer` of a signal for all ranks of the node.
inline constexpr int whole_node = -1;
inline constexpr int no_rank = -1;

// One action of one rank. A flag is a counter for each rank that raises it, and only rises. A flag
// for a whole node is visible to all its ranks at once.
struct Step {
    Action action = Action::wait;
    bool finish = false;
    // Signal: grants the credit for an eager put; the peer is not notified, since it does not wait.
    // Wait: the credit for the put that follows in the lane. It is sent at once, and the receiver
    // keeps it until it has granted the credit, unless the receiver keeps many already: then the
    // step waits for the credit.
    bool eager = false;
    // Signal to, or wait for, a rank of another node: skipped unless the receive mask of some rank
    // of this node has that rank (Schedule::receive_mask).
    bool conditional = false;
    int peer = whole_node;
    // Put to a forwarding rank: the rank that the bytes are for. Wait for a forwarding rank: the
    // rank that sent the bytes.
    int final_peer = no_rank;
    std::uint32_t flag = 0;
    std::uint32_t value = 0;
    When when = When::always;
    Region array = Region::source;  // the array that `when` and Place::registered are about
    std::int64_t count = 0;  // elements
    Place to = {};
    Place from = {};  // the first source
    // Reduction: the other sources, in Lane::more().
    std::uint32_t more_begin = 0;
    std::uint32_t more = 0;

    bool moves() const {
        return action == Action::copy || action == Action::reduce || action == Action::put;
    }
    bool operator==(const Step &) const = default;
};

// Steps that run in order. A step starts when the one before it is done; a put is done as soon as
// the transport has taken it.
class Lane {
public:
    Lane() = default;
    // `array`: Step::array of all steps.
    explicit Lane(Region array) : array_(array) {}

    void acquire() { steps_.push_back({.action = Action::acquire, .array = array_}); }
    // Acquires the eager buffer of a message to or from `peer`. If `value` is not 0, the step also
    // waits until the peer has raised `flag` to the `value` of the previous message.
    void acquire_from(int peer, std::uint32_t flag, std::uint32_t value) {
        steps_.push_back({.action = Action::acquire, .peer = peer, .flag = flag, .value = value});
    }
    void copy(Place from, Place to, std::int64_t count, When when = When::always) {
        if (count == 0) return;
        to.registered = only_here;
        steps_.push_back({.action = Action::copy,
                          .when = when,
                          .array = array_,
                          .count = count,
                          .to = to,
                          .from = from});
    }
    // Combines in the order of `from`, which must not be empty. Contributions precede partial sums;
    // one partial sum may precede the contributions.
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
    void wait_when(When when, int peer, std::uint32_t flag, std::uint32_t value) {
        wait(peer, flag, value);
        steps_.back().when = when;
        steps_.back().array = array_;
    }

    // A put to a forwarding rank, for `receiver`.
    void put_forwarded(Place from, Place to, std::int64_t count, std::uint32_t flag,
                       std::uint32_t value, int receiver) {
        put(from, to, count, flag, value);
        steps_.back().final_peer = receiver;
    }
    // Waits for bytes of `sender` that `peer`, a rank of this node, forwards.
    void wait_forwarded(int peer, std::uint32_t flag, std::uint32_t value, int sender) {
        wait(peer, flag, value);
        steps_.back().final_peer = sender;
    }
    void signal_conditional(int peer, std::uint32_t flag, std::uint32_t value, bool eager) {
        signal(peer, flag, value, eager);
        steps_.back().conditional = true;
    }
    void wait_conditional(int peer, std::uint32_t flag, std::uint32_t value) {
        wait(peer, flag, value);
        steps_.back().conditional = true;
    }

    const std::vector<Step> &steps() const { return steps_; }
    std::vector<Step> &steps() { return steps_; }
    // All sources of a reduction except the first.
    std::span<const Place> more(const Step &step) const {
        return std::span(more_).subspan(step.more_begin, step.more);
    }
    // All places that a step reads.
    std::vector<Place> sources(const Step &step) const;
    std::vector<Place *> source_places(Step &step);
    bool operator==(const Lane &) const = default;

private:
    std::vector<Step> steps_;
    std::vector<Place> more_;
    Region array_ = Region::source;
};

// True if the first source of a reduction is a partial sum to which contributions are added.
inline bool starts_with_sum(std::span<const Place> from) {
    return from.size() > 1 && from[0].region == Region::partial &&
           from[1].region != Region::partial;
}

// The actions of one rank in one collective. A plain value: printable, comparable, and checked by
// the schedule checker (check.h). Lanes run side by side and synchronise through flags. The
// collective is complete on this rank when every lane is at its end and every put has left.
struct Schedule {
    std::vector<Lane> lanes;
    // Elements that this rank needs in its staging buffer, for partial sums, and for inline data.
    std::int64_t staging = 0;
    std::int64_t partial = 0;
    std::int64_t inlined = 0;
    // Receive mask. By rank; 1: this rank receives bytes of that rank, of another node, through a
    // forwarding rank, which does not know the counts (Step::conditional). The executor publishes
    // the mask to the node after it has acquired the slot. Empty: no conditional steps.
    std::vector<std::uint8_t> receive_mask;

    bool operator==(const Schedule &) const = default;
};

// One line for each step.
std::string describe(const Schedule &schedule);
std::string describe(const Lane &lane, const Step &step);
std::string describe(const Place &place);

// Arrays of the callers that are registered, by rank; empty: none. For the schedule checker.
struct CheckedRegistrations {
    std::vector<bool> source, output;
    // all_reduce: ranks whose source and output are one array.
    std::vector<bool> in_place;

    bool contains(int rank, Region array) const {
        const std::vector<bool> &those = array == Region::source ? source : output;
        return !those.empty() && those[static_cast<std::size_t>(rank)];
    }
};

// Joins two schedules of one rank, which use the same flags. The lanes of `second` start when lane
// 0 of `first` is at its end. Every rank must join the same two algorithms. These must use separate
// parts of the staging buffer and of the partial sums.
Schedule join_schedules(int rank, Schedule first, const Schedule &second);

}  // namespace vescomm::internal
