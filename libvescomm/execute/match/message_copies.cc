// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/match/message_copies.h"

#include <algorithm>

namespace vescomm::internal {

MessageCopies::Space MessageCopies::reserve(ArrivedMessage &message, std::uint64_t bytes,
                                            std::uint64_t length) noexcept {
    const bool first = message.chunks == 0;
    const std::uint64_t before = message.bytes.capacity();
    const std::uint64_t others = first ? bytes_ : bytes_ - description_bytes - before;
    const auto fits = [&](std::uint64_t capacity) {
        return others <= limit_ && description_bytes <= limit_ - others &&
               capacity <= limit_ - others - description_bytes;
    };
    const std::uint64_t needed = message.bytes.size() + bytes;
    std::uint64_t capacity = before;
    if (needed > before) {
        // Doubling bounds the number of times that the bytes are moved.
        capacity = std::clamp(2 * before, needed, std::max(needed, length));
        if (!fits(capacity)) capacity = needed;
    }
    if (!fits(capacity)) return Space::at_limit;
    try {
        message.bytes.reserve(capacity);
    } catch (...) {
        return Space::no_memory;
    }
    bytes_ = others + description_bytes + message.bytes.capacity();
    if (first) {
        spare_bytes_ -= before;
        ++messages_;
    }
    return Space::yes;
}

void MessageCopies::drop(ArrivedMessage &message) noexcept {
    const std::uint64_t capacity = message.bytes.capacity();
    bytes_ -= description_bytes + capacity;
    --messages_;
    message.chunks = 0;
    message.bytes.clear();
    if (capacity > max_spare_copy || capacity > max_spare_bytes - spare_bytes_) message.bytes = {};
    else spare_bytes_ += capacity;
}

}  // namespace vescomm::internal
