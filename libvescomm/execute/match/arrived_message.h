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
    // A copy of its first chunks, which have left the eager buffer. The last one may be longer than
    // its part of the message.
    std::uint64_t chunks = 0;
    std::vector<std::byte> bytes;
    // Links of TagQueues and FreeList.
    ArrivedMessage *next = nullptr, *last = nullptr, *other_tag = nullptr;

    std::int32_t tag() const noexcept { return header.tag; }
};

// A receive that has been started.
struct PostedReceive {
    int source = 0;  // a rank, or VESCOMM_ANY_SOURCE
    std::int32_t expected_tag = 0;
    std::uint64_t order = 0;  // among all receives of this rank: lower is older
    bool found = false;
    MessageHeader header;  // of its message, once it is found
    ArrivedMessage *copy = nullptr;  // its message, if chunks of it were copied
    // Links of TagQueues.
    PostedReceive *next = nullptr, *last = nullptr, *other_tag = nullptr;

    std::int32_t tag() const noexcept { return expected_tag; }
};

}  // namespace vescomm::internal
