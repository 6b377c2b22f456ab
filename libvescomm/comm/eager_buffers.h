// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/memory.h"
#include "execute/bindings.h"
#include "execute/match/message_match.h"
#include "execute/operation.h"

namespace vescomm::internal {

// The memory through which point-to-point messages pass (schedule/send_receive.h). It has slots,
// and each slot has an eager buffer for each peer. Only two ranks call for a message, so messages
// have no slot sequence number of the staging buffer. Instead each pair counts its messages in each
// direction: message n uses the eager buffer in slot n mod slots, once the message that used it
// before has been read. A receiver finds out by the signature which of the messages have arrived,
// and which one is for which receive (execute/match/message_match.h).
//
//     slot 0: │ for rank 0: chunk, chunk │ for rank 1 │ ...  slot 1: │ for rank 0 ...
//
// Each rank has a channel for each peer and slot, on which it raises flags for that peer. The flags
// of the peer are on the channel that the peer has for this rank.
class EagerBuffers {
public:
    // Collective, blocking.
    static std::shared_ptr<EagerBuffers> create(const std::shared_ptr<Communicator> &comm);

    const std::shared_ptr<Communicator> &comm() const { return comm_; }

    // Elements of a chunk.
    std::int64_t chunk(vescomm_type_t type) const;
    // Binds messages to the peer; messages from it, or from VESCOMM_ANY_SOURCE.
    void bind_send(Bindings &bindings, vescomm_type_t type, int peer);
    void bind_receive(Bindings &bindings, vescomm_type_t type, int peer);
    // The run of the next message to the peer.
    Run next(int peer);

private:
    static constexpr std::uint32_t slots = EagerPlaces::slots;
    // The messages to a peer.
    struct Peer {
        std::uint64_t messages = 0;
        std::array<MessageQueue, slots> queues;
    };

    explicit EagerBuffers(const std::shared_ptr<Communicator> &comm);

    static std::uint64_t chunk_bytes_for(int ranks);
    EagerPlaces places() const;
    void bind(Bindings &bindings, vescomm_type_t type, int peer) const;
    Peer &to(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

    std::shared_ptr<Communicator> comm_;
    std::uint64_t chunk_bytes_ = 0;
    std::uint64_t slot_bytes_ = 0;
    std::shared_ptr<Memory> memory_;
    std::uint32_t channel_ = 0;  // of peer 0 and slot 0; the others follow
    std::vector<Peer> peers_;
    MessageMatch arrivals_;
};

}  // namespace vescomm::internal
