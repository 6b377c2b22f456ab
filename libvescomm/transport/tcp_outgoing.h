// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "transport/tcp_queue.h"
#include "transport/tcp_wire.h"

namespace vescomm::internal {

// The message that a sender is handing over to the kernel: a header, and the bytes that follow it.
// They are sent from where they are.
class TcpOutgoing {
public:
    // Begins a message with these bytes. The caller fills the header.
    TcpMessage &begin(const std::byte *bytes) noexcept {
        head_ = {};
        bytes_ = bytes;
        sent_ = 0;
        active_ = true;
        return head_;
    }

    // The put that ends with the message; nullptr: none does.
    void set_put(TcpPut *put) noexcept { put_ = put; }
    TcpPut *put() const noexcept { return put_; }
    TcpPut *take_put() noexcept { return std::exchange(put_, nullptr); }

    bool active() const noexcept { return active_; }
    bool is_of(std::uint32_t context) const noexcept { return active_ && head_.context == context; }
    bool is_put_of(std::uint32_t context) const noexcept {
        return is_of(context) && head_.kind != TcpKind::goodbye;
    }
    std::size_t left() const noexcept { return sizeof head_ + head_.bytes - sent_; }

    // The next bytes, at most `space`, which is more than a header: in one or two parts. Returns
    // the number of parts.
    std::size_t parts(std::size_t space, iovec (&parts)[2]) noexcept {
        std::size_t count = 0, at = sent_;
        if (at < sizeof head_) {
            const std::size_t bytes = sizeof head_ - at;
            parts[count++] = {reinterpret_cast<std::byte *>(&head_) + at, bytes};
            space -= bytes;
            at = sizeof head_;
        }
        at -= sizeof head_;
        if (at < head_.bytes)
            parts[count++] = {const_cast<std::byte *>(bytes_) + at,
                              std::min<std::size_t>(space, head_.bytes - at)};
        return count;
    }
    void advance(std::size_t sent) noexcept { sent_ += sent; }

    // Copies the bytes, so that their owner can take back the source. The rest of a message under
    // way must be sent, or the peer could not find the next header. Throws std::bad_alloc.
    void own_bytes() {
        if (head_.bytes == 0) return;
        owned_.assign(bytes_, bytes_ + head_.bytes);
        bytes_ = owned_.data();
    }

    // Ends the message.
    void clear() noexcept {
        active_ = false;
        bytes_ = nullptr;
        if (!owned_.empty()) std::vector<std::byte>().swap(owned_);
    }

private:
    bool active_ = false;
    TcpMessage head_;
    const std::byte *bytes_ = nullptr;  // bytes that follow the header
    std::uint64_t sent_ = 0;  // bytes of header and payload sent so far
    TcpPut *put_ = nullptr;
    std::vector<std::byte> owned_;  // the bytes, once their owner has taken the source back
};

}  // namespace vescomm::internal
