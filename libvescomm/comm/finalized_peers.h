// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/control.h"
#include "schedule/schedule.h"
#include "transport/transport.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// For how long nothing has moved in a wait, or in the tests of a request.
struct Silence {
    // The moment since which an awaited rank has left and nothing has moved.
    Clock::time_point since = Clock::time_point::max();
    std::uint64_t moved_by_thread = 0;
};

// Finds out that a wait, or a tested request, waits for a rank that has left, and that nothing has
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

    void moved() { silence_.since = Clock::time_point::max(); }

    // Returns the rank that has left, or no_rank. `moved_by_thread`: times that the progress thread
    // moved anything so far. Allocates nothing as long as no rank has left; without memory for a
    // list of ranks, finds none.
    template <typename WaitingFor>
    int find(std::uint64_t moved_by_thread, const WaitingFor &waits_directly_for) {
        if (!control_.any_has_left()) return no_rank;
        if (moved_by_thread != silence_.moved_by_thread) moved();
        silence_.moved_by_thread = moved_by_thread;
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
        silence_.since = std::min(silence_.since, now);
        const std::chrono::duration<double> grace(
            intra_node_.maps(*peer) ? grace_after_finalize
                                    : std::max(grace_after_finalize, inter_node_grace_));
        return now - silence_.since > grace ? *peer : no_rank;
    }

private:
    // Bytes that a rank sent before it left may arrive later. A wait for such a rank ends when
    // nothing has moved for this long; between nodes also at least as long as a rank may be silent,
    // because the network may lose packets and send them again.
    static constexpr double grace_after_finalize = 2;

    const Control &control_;
    const Transport &intra_node_;
    const double inter_node_grace_;
    Silence &silence_;
};

}  // namespace vescomm::internal
