// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "execute/match/arrived_message.h"

namespace vescomm::internal {

// The memory of the messages whose chunks have been copied out of their eager buffers. It has a
// limit: a rank that does not receive does not run out of memory.
class MessageCopies {
public:
    // `limit`: bytes of all copies together. A copy counts with its allocated bytes, and with those
    // that describe it, so messages without data have a limit too.
    explicit MessageCopies(std::uint64_t limit) : limit_(limit) {}

    enum class Space { yes, at_limit, no_memory };
    // Reserves space for `bytes` more of a message, and counts it from its first chunk on.
    // `length`: of the whole message, or more. Nothing changes unless the result is `yes`.
    Space reserve(ArrivedMessage &message, std::uint64_t bytes, std::uint64_t length) noexcept;
    // Ends the copy of a message, which has at least one chunk.
    void drop(ArrivedMessage &message) noexcept;

    std::uint64_t limit() const noexcept { return limit_; }
    // All copies together.
    std::uint64_t bytes() const noexcept { return bytes_; }
    std::uint64_t messages() const noexcept { return messages_; }

private:
    // The description of a message, and its part of the hash table by which receives find it.
    static constexpr std::uint64_t description_bytes = sizeof(ArrivedMessage) + 2 * sizeof(void *);
    // Dropped copies keep their memory for the next ones up to this size, alone and together.
    static constexpr std::uint64_t max_spare_copy = 64 << 10;
    static constexpr std::uint64_t max_spare_bytes = 1 << 20;

    const std::uint64_t limit_;
    std::uint64_t bytes_ = 0, messages_ = 0;
    std::uint64_t spare_bytes_ = 0;  // allocated in dropped copies
};

}  // namespace vescomm::internal
