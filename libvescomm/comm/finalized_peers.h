// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/control.h"
#include "schedule/schedule.h"
#include "transport/transport.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// For how long nothing has moved in a wait, or in the tests of a request. Threads: safe.
class Silence {
public:
    // Something has moved.
    void end() noexcept { since_.store(none, std::memory_order_relaxed); }
    // Nothing has moved. Returns since when, at the latest `now`.
    Clock::time_point go_on(Clock::time_point now) noexcept {
        const Clock::rep ticks =
            std::min(since_.load(std::memory_order_relaxed), now.time_since_epoch().count());
        since_.store(ticks, std::memory_order_relaxed);
        return Clock::time_point(Clock::duration(ticks));
    }
    // Times that the progress thread has moved anything. Returns true if it has since the last
    // call.
    bool moved_by_thread(std::uint64_t moves) noexcept {
        return moves_.exchange(moves, std::memory_order_relaxed) != moves;
    }

private:
    static constexpr Clock::rep none = std::numeric_limits<Clock::rep>::max();
    std::atomic<Clock::rep> since_{none};
    std::atomic<std::uint64_t> moves_{0};
};

// Finds out whether a wait, or a tested request, is for a rank that has left, while nothing has
// moved for long. A wait for any rank includes this one, which has not left: another of its threads
// may send.
class FinalizedPeers {
public:
    // `inter_node_grace`: seconds, for ranks that `intra_node` does not reach.
    FinalizedPeers(const Control &control, const Transport &intra_node, double inter_node_grace,
                   Silence &silence)
        : control_(control),
          intra_node_(intra_node),
          inter_node_grace_(inter_node_grace),
          silence_(silence) {}

    void moved() { silence_.end(); }

    // Returns the rank that has left, or no_rank. `moved_by_thread`: times that the progress thread
    // moved anything so far. Allocates nothing as long as no rank has left; without memory for a
    // list of ranks, finds none.
    template <typename WaitingFor>
    int find(std::uint64_t moved_by_thread, const WaitingFor &waits_directly_for) {
        if (!control_.any_has_left()) return no_rank;
        if (silence_.moved_by_thread(moved_by_thread)) moved();
        std::vector<int> ranks;
        try {
            ranks = waits_directly_for();
        } catch (const std::bad_alloc &) {
            return no_rank;
        }
        const auto peer = std::ranges::find_if(
            ranks, [&](int rank) { return rank != VESCOMM_ANY_SOURCE && control_.has_left(rank); });
        if (peer == ranks.end()) {
            moved();
            return no_rank;
        }
        const auto now = Clock::now();
        const auto since = silence_.go_on(now);
        const std::chrono::duration<double> grace(
            intra_node_.maps(*peer) ? grace_within_node
                                    : std::max(grace_between_nodes, inter_node_grace_));
        return now - since > grace ? *peer : no_rank;
    }

private:
    // A wait for a rank that has left ends when nothing has moved for this long. On one node what a
    // rank sent lies in this one's memory before its goodbye comes: one more look is enough.
    static constexpr double grace_within_node = 0.25;
    // Between nodes bytes may arrive later: also at least as long as a rank may be silent, because
    // the network may lose packets and send them again.
    static constexpr double grace_between_nodes = 2;

    const Control &control_;
    const Transport &intra_node_;
    const double inter_node_grace_;
    Silence &silence_;
};

}  // namespace vescomm::internal
