// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "execute/match/arrived_message.h"
#include "execute/match/message_copies.h"
#include "execute/match/tag_queues.h"
#include "topology/nodes.h"
#include "transport/free_list.h"
#include "transport/transport.h"

namespace vescomm::internal {

// The eager buffers of a communicator, and the channels of their flags (comm/eager_buffers.h).
struct EagerPlaces {
    static constexpr std::uint32_t slots = 4;

    int rank = 0;
    Nodes nodes;
    std::vector<Transport *> transports;  // by rank
    std::shared_ptr<Mapping> mapping;
    std::uint64_t slot_bytes = 0;
    std::uint64_t chunk_bytes = 0;
    std::uint32_t first_channel = 0;  // of rank 0 and slot 0; the others follow

    std::uint32_t channel_for(int peer) const noexcept {
        return first_channel + slots * static_cast<std::uint32_t>(peer);
    }
    // Bytes from the begin of a slot to the eager buffer through which messages of `source` to this
    // rank pass. It lies in the memory of the source if that is a local peer, and else in that of
    // this rank.
    std::uint64_t begin(int source) const noexcept {
        const int owner = nodes.together(rank, source) ? rank : source;
        return 2 * chunk_bytes * static_cast<std::uint64_t>(owner);
    }
    int owner(int source) const noexcept { return nodes.together(rank, source) ? source : rank; }
};

// Matches the messages that arrive at this rank with its receives, by source and tag.
//
//     sender ── eager buffer, signature, tag ──► arrived, in the order of the sender
//                                                   │ oldest posted receive that fits
//                                                   ▼
//     receive ── oldest unexpected message that fits, or ──► posted receives
//
// Messages of one source are observed in the order in which it sent them, so those of one source
// and tag do not overtake each other. A receive from any source first observes the messages of all
// sources that have arrived. Sources with messages that fit are served round robin, so that none
// with many messages holds up the others.
//
// An unexpected message stays in its eager buffer, where it blocks the next message but three.
// While a receive waits for messages of this source, the chunks of a message in their way are
// copied to memory of this rank as they come.
//
// Threads: see Operation. Zone: per operation, no allocation but for messages that are copied, and
// for a number of unexpected messages or of their tags that is larger than ever before.
// Source: posted-receive and unexpected-message queues, as in MPICH and Open MPI.
class MessageMatch {
public:
    // Limit of the copies of unexpected messages, all together (MessageCopies).
    static constexpr std::uint64_t max_copied_bytes = 256 << 20;

    explicit MessageMatch(EagerPlaces places, std::uint64_t copied_limit = max_copied_bytes);

    // Posts a receive, with its source and tag. It takes an unexpected message that fits, if there
    // is one: the oldest one of its source.
    void post(PostedReceive &receive) noexcept;
    // True if the receive has its message.
    bool find(PostedReceive &receive) noexcept;
    // The receive no longer needs the copy of its message.
    void release(PostedReceive &receive) noexcept;

    // A clause for the error of a wait: why this rank itself keeps the receive from finding its
    // message, and what to do. Empty: it does not. Throws std::bad_alloc.
    std::string obstacle(const PostedReceive &receive) const;

    const EagerPlaces &places() const noexcept { return places_; }

private:
    static constexpr std::uint32_t slots = EagerPlaces::slots;
    struct Source {
        int rank = 0;
        bool local = false;  // a local peer
        Transport *transport = nullptr;
        std::uint64_t observed = 0;  // messages
        TagQueues<PostedReceive> posted;
        TagQueues<ArrivedMessage> unexpected;
        // Unexpected messages that occupy an eager buffer, by slot.
        ArrivedMessage *in_slot[slots] = {};
        // The space for a copy of the message in the way of the next one.
        MessageCopies::Space space = MessageCopies::Space::yes;
    };

    Source &of(int source) noexcept { return sources_[static_cast<std::size_t>(source)]; }
    TagQueues<PostedReceive> &posted_for(int source) noexcept {
        return source == VESCOMM_ANY_SOURCE ? posted_for_any_ : of(source).posted;
    }
    // Visits all sources, beginning behind the one that was served last, until `visit` returns
    // true.
    template <typename Visit>
    void round_robin(Visit visit) noexcept;
    void served(int source) noexcept {
        next_source_ = (static_cast<std::size_t>(source) + 1) % sources_.size();
    }
    void observe_headers(Source &source, const PostedReceive &waiting) noexcept;
    void observe(Source &source, const PostedReceive &waiting) noexcept;
    bool read_header(const Source &source, MessageHeader &header) const noexcept;
    bool give_to_receive(const MessageHeader &header) noexcept;
    bool keep(const MessageHeader &header) noexcept;
    ArrivedMessage *find_unexpected(const PostedReceive &receive) noexcept;
    void take(PostedReceive &receive, ArrivedMessage &message) noexcept;
    void copy_chunks(ArrivedMessage &message) noexcept;
    void give_back(ArrivedMessage &message) noexcept;

    const EagerPlaces places_;
    const std::uint32_t channel_;  // of the flags that sources raise for this rank, in slot 0
    std::vector<Source> sources_;  // by rank
    TagQueues<PostedReceive> posted_for_any_;
    FreeList<ArrivedMessage> free_list_;
    std::uint64_t posts_ = 0;
    // Behind the source that served a receive from any source last.
    std::size_t next_source_ = 0;
    MessageCopies copies_;
};

}  // namespace vescomm::internal
