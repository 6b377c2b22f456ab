// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "topology/machine.h"
#include "topology/nodes.h"

namespace vescomm::internal {

// A message on its way. Links forward messages in FIFO order with cut-through: the first byte
// passes as soon as the link is free, and the last byte follows at the rate of the slowest link so
// far.
struct SimulatedMessage {
    double bytes = 0;
    double first = 0;  // time when the first byte arrives here
    double last = 0;  // time when the last byte arrives here
};

// The links between nodes, and the time until which each is busy.
//
//     rank ─► rail ─► switch ─ ─ put_seconds ─ ─► switch ─► rail ─► memory
//
class SimulatedFabric {
public:
    SimulatedFabric(const Nodes &nodes, const Machine &machine) : nodes_(nodes), machine_(machine) {
        int largest = 1;
        for (int node = 0; node < nodes.count(); ++node)
            largest = std::max(largest, static_cast<int>(nodes.members(node).size()));
        rails_ = machine.rails > 0 ? machine.rails : largest;
        const auto count = static_cast<std::size_t>(nodes.count());
        ranks_.resize(static_cast<std::size_t>(nodes.ranks()));
        out_.resize(count * static_cast<std::size_t>(rails_));
        in_ = out_;
        if (machine.nodes_per_switch > 0) {
            const auto per = static_cast<std::size_t>(machine.nodes_per_switch);
            up_.resize((count + per - 1) / per);
            down_ = up_;
        }
    }

    // Passes a message through the links of the sender. `handed` is the time when the core hands it
    // over.
    SimulatedMessage leave(int from, int to, double handed, double bytes) {
        SimulatedMessage message{bytes, handed, handed};
        const SimulatedMessage queued =
            pass(message, ranks_[static_cast<std::size_t>(from)], machine_.rank_bytes);
        message = pass(queued, out_[rail(from)], machine_.rail_bytes);
        if (crosses(from, to)) message = pass(message, up_[tree(from)], link_bytes());
        return message;
    }
    // Passes a message through the links of the receiver. message.first is the time when its first
    // byte arrives there.
    SimulatedMessage arrive(int from, int to, SimulatedMessage message) {
        if (crosses(from, to)) message = pass(message, down_[tree(to)], link_bytes());
        return pass(message, in_[rail(to)], machine_.rail_bytes);
    }

private:
    static SimulatedMessage pass(SimulatedMessage message, double &busy_until, double rate) {
        if (rate <= 0) return message;
        message.first = std::max(message.first, busy_until);
        busy_until = message.first + message.bytes / rate;
        message.last = std::max(message.last, busy_until);
        return message;
    }
    std::size_t rail(int rank) const {
        return static_cast<std::size_t>(nodes_.node_of(rank) * rails_ +
                                        nodes_.local_rank(rank) % rails_);
    }
    std::size_t tree(int rank) const {
        return static_cast<std::size_t>(nodes_.node_of(rank) / machine_.nodes_per_switch);
    }
    bool crosses(int from, int to) const { return !up_.empty() && tree(from) != tree(to); }
    double link_bytes() const {
        return machine_.nodes_per_switch * rails_ * machine_.rail_bytes / machine_.oversubscription;
    }

    const Nodes &nodes_;
    const Machine &machine_;
    int rails_ = 1;
    // Times until which links are busy: each rank's own limit, rails out and in, switches up and
    // down.
    std::vector<double> ranks_, out_, in_, up_, down_;
};

}  // namespace vescomm::internal
