// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/memory.h"
#include "execute/bindings.h"
#include "execute/operation.h"

namespace vescomm {

// The memory through which messages pass from one rank to another (schedule/send_receive.h): slots,
// and in each a box for each peer. Only two ranks call for a message, so messages have no turn at
// the staging buffer. Instead, each pair and direction counts for itself: the n-th message has the
// box in slot n mod slots, once the message that had it before has been read.
//
//     slot 0: │ box for rank 0: chunk, chunk │ box for rank 1 │ ...  slot 1: │ box for rank 0 ...
//
// Each rank has a channel for each peer and slot, on which it raises flags for that peer. Those of
// the peer are on the channel which the peer has for this rank.
class EagerBuffers {
public:
    // Collective, blocking.
    static std::shared_ptr<EagerBuffers> create(const std::shared_ptr<Communicator> &comm);

    const std::shared_ptr<Communicator> &comm() const { return comm_; }

    // Elements of a chunk.
    std::int64_t chunk(vescomm_type_t type) const;
    // For messages to the peer, or from it.
    void bind(Bindings &bindings, vescomm_type_t type, int peer, bool receives);
    // The turn of the next of them.
    Run next(int peer, bool receives);

private:
    static constexpr std::uint32_t slots = 4;
    struct Direction {
        std::uint64_t messages = 0;
        std::array<MessageQueue, slots> queues;
    };
    struct Peer {
        Direction from, to;
    };

    explicit EagerBuffers(const std::shared_ptr<Communicator> &comm);

    static std::uint64_t chunk_bytes_for(int ranks);
    Direction &direction(int peer, bool receives);
    std::uint32_t channel_for(int peer) const;

    std::shared_ptr<Communicator> comm_;
    std::uint64_t chunk_bytes_ = 0;
    std::uint64_t slot_bytes_ = 0;
    std::shared_ptr<Memory> memory_;
    std::uint32_t channel_ = 0;  // the first of all
    std::vector<Peer> peers_;
};

}  // namespace vescomm
