// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

// The description of a message that its sender shows before the bytes.
struct MessageHeader {
    int source = 0;
    std::int32_t tag = 0;
    std::uint32_t signature = 0;  // Signature::of_message()
    std::uint64_t number = 0;  // among the messages of the source to this rank, from 0
};

// A message that has arrived at this rank, and that no receive has taken.
struct ArrivedMessage {
    MessageHeader header;
    std::uint64_t order = 0;  // among all that arrived at this rank: lower is older
    ArrivedMessage *next = nullptr;  // in its list
    // A copy of its first chunks, which have left the eager buffer. The last one may be longer than
    // its part of the message.
    std::uint64_t chunks = 0;
    std::vector<std::byte> bytes;

    std::int32_t tag() const noexcept { return header.tag; }
};

// A receive that has been started.
struct PostedReceive {
    int source = 0;  // a rank, or VESCOMM_ANY_SOURCE
    std::int32_t expected_tag = 0;
    std::uint64_t order = 0;  // among all receives of this rank: lower is older
    PostedReceive *next = nullptr;  // in its list
    bool found = false;
    MessageHeader header;  // of its message, once it is found
    ArrivedMessage *copy = nullptr;  // its message, if chunks of it were copied

    std::int32_t tag() const noexcept { return expected_tag; }
};

// Receives or messages, oldest first. The list owns none of them.
template <typename Thing>
class MessageList {
public:
    void add(Thing &thing) noexcept {
        thing.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &thing;
        last_ = &thing;
    }
    // The oldest one with this tag, or nullptr.
    Thing *find(std::int32_t tag) const noexcept {
        Thing *thing = first_;
        while (thing != nullptr && thing->tag() != tag) thing = thing->next;
        return thing;
    }
    // `thing` is in the list.
    void remove(Thing &thing) noexcept {
        Thing *before = nullptr;
        for (Thing *each = first_; each != &thing; each = each->next) before = each;
        (before == nullptr ? first_ : before->next) = thing.next;
        if (last_ == &thing) last_ = before;
        thing.next = nullptr;
    }

private:
    Thing *first_ = nullptr, *last_ = nullptr;
};

// The older one of two, of which each may be nullptr.
template <typename Thing>
Thing *older(Thing *a, Thing *b) noexcept {
    if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
    return a->order < b->order ? a : b;
}

}  // namespace vescomm::internal
