// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vescomm {

// Where bytes can be. `buffer` and `scratch` are memory that the ranks of a node map from one
// another and that other nodes put into; `source` and `output` are the caller's own arrays, which
// only their own rank can touch.
enum class Region : std::uint8_t { source, buffer, output, scratch };

// An element of a region of a rank. Offsets count elements: in `buffer` from the start of the
// layout, in `source` and `output` from the start of the rank's shard.
struct Place {
    int rank = 0;
    Region region = Region::buffer;
    std::int64_t offset = 0;
    bool operator==(const Place &) const = default;
};

enum class Action : std::uint8_t {
    acquire,  // wait until every rank of this node has released the buffer
    copy,  // from[0] -> to, converting where the regions' types differ
    reduce,  // sum of all from -> to, accumulated in f32; with `finish` the result is scaled
    put,  // from[0] -> to in a peer's memory, and then raise `flag` there
    signal,  // raise `flag`: at the listed peers, or at all of this node when none is listed
    wait,  // until peers[0] has raised `flag` to `value`
};

// One thing that one rank does. Flags are counters: each (raising rank, flag) only ever rises, and
// within a node everyone sees it at once.
struct Step {
    Action action = Action::wait;
    bool finish = false;
    std::uint32_t flag = 0;
    std::uint32_t value = 0;
    std::int64_t count = 0;  // elements
    Place to = {};
    std::vector<Place> from = {};
    std::vector<int> peers = {};
    bool operator==(const Step &) const = default;
};

// Steps in order: each starts when the one before it is done, except that a put is done as soon as
// it is handed over.
class Lane {
public:
    void acquire() { steps_.push_back({.action = Action::acquire}); }
    void copy(Place from, Place to, std::int64_t count) {
        if (count > 0)
            steps_.push_back({.action = Action::copy, .count = count, .to = to, .from = {from}});
    }
    void reduce(std::vector<Place> from, Place to, std::int64_t count, bool finish) {
        if (count > 0)
            steps_.push_back({.action = Action::reduce,
                              .finish = finish,
                              .count = count,
                              .to = to,
                              .from = std::move(from)});
    }
    void put(Place from, Place to, std::int64_t count, std::uint32_t flag, std::uint32_t value) {
        steps_.push_back({.action = Action::put,
                          .flag = flag,
                          .value = value,
                          .count = count,
                          .to = to,
                          .from = {from},
                          .peers = {to.rank}});
    }
    void signal_node(std::uint32_t flag, std::uint32_t value) {
        steps_.push_back({.action = Action::signal, .flag = flag, .value = value});
    }
    void signal(int peer, std::uint32_t flag, std::uint32_t value) {
        steps_.push_back({.action = Action::signal, .flag = flag, .value = value, .peers = {peer}});
    }
    void wait(int peer, std::uint32_t flag, std::uint32_t value) {
        steps_.push_back({.action = Action::wait, .flag = flag, .value = value, .peers = {peer}});
    }

    const std::vector<Step> &steps() const { return steps_; }
    std::vector<Step> &steps() { return steps_; }
    bool operator==(const Lane &) const = default;

private:
    std::vector<Step> steps_;
};

// What one rank does in one collective. A plain value: printable, comparable, provable (check.h).
// Lanes run side by side and meet through flags; the collective is complete on this rank when all
// of them are at their end and every put has left.
struct Schedule {
    std::vector<Lane> lanes;
    std::int64_t scratch = 0;  // elements of this rank's scratch region, always f32

    bool operator==(const Schedule &) const = default;
};

// One line for each step.
std::string describe(const Schedule &schedule);
std::string describe(const Step &step);

// `second` after `first`, on the same flags, for one rank: the lanes of `second` start when lane 0
// of `first` is at its end. Every rank must do the same. `second` must not use scratch.
Schedule then(int rank, Schedule first, const Schedule &second);

}  // namespace vescomm
