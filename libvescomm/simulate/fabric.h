// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "topology/machine.h"
#include "topology/nodes.h"

namespace vescomm {

// What passes one after another, and is cut through: the first byte goes on when there is room, and
// the last one follows as fast as the slowest link lets it.
struct Message {
    double bytes = 0;
    double first = 0;  // when the first byte is here
    double last = 0;
};

// The links between nodes, and until when each is taken.
//
//     rank ─► rail ─► switch ─ ─ put_seconds ─ ─► switch ─► rail ─► memory
//
class Fabric {
public:
    Fabric(const Nodes &nodes, const Machine &machine) : nodes_(nodes), machine_(machine) {
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

    // From when it is handed over; what it returns has passed the sender's half.
    Message leave(int from, int to, double handed, double bytes) {
        Message message{bytes, handed, handed};
        const Message queued =
            pass(message, ranks_[static_cast<std::size_t>(from)], machine_.rank_bytes);
        message = pass(queued, out_[rail(from)], machine_.rail_bytes);
        if (crosses(from, to)) message = pass(message, up_[tree(from)], link_bytes());
        return message;
    }
    // From when its first byte is at the receiver's half.
    Message arrive(int from, int to, Message message) {
        if (crosses(from, to)) message = pass(message, down_[tree(to)], link_bytes());
        return pass(message, in_[rail(to)], machine_.rail_bytes);
    }

private:
    static Message pass(Message message, double &taken, double rate) {
        if (rate <= 0) return message;
        message.first = std::max(message.first, taken);
        taken = message.first + message.bytes / rate;
        message.last = std::max(message.last, taken);
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
    std::vector<double> ranks_, out_, in_, up_, down_;
};

}  // namespace vescomm
