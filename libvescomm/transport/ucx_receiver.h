// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transport/ucx_shared.h"

namespace vescomm::internal {

// The messages that arrive at this process. Finds the sender and the communicator of each message.
// Messages for a communicator that is not open here, or that does not contain the sender, are
// dropped.
//
// A message with an invalid header fails all communicators that contain its sender; if the sender
// cannot be identified, all communicators of the fabric. The communicator checks everything else
// (ucx_inbox.h).
//
// Threads: everything under the mutex of the fabric.
class UcxReceiver {
public:
    // Throws.
    explicit UcxReceiver(UcxShared &shared);
    UcxReceiver(const UcxReceiver &) = delete;
    UcxReceiver &operator=(const UcxReceiver &) = delete;

    // Registers the handler for incoming messages. Throws.
    void open();
    // Ignores all further messages.
    void close() noexcept { closed_ = true; }

    // Secret that every message for this process must carry.
    std::uint64_t token() const { return token_; }

private:
    static ucs_status_t message_arrived(void *receiver, const void *header,
                                        std::size_t header_bytes, void *data,
                                        std::size_t data_bytes,
                                        const ucp_am_recv_param_t *parameters);

    bool take(UcxEndpoint &endpoint, const UcxMessage &message, void *data,
              bool rendezvous) noexcept;
    void refuse(UcxEndpoint *sender, const UcxMessage &message, const char *why) noexcept;

    UcxShared &shared_;
    const std::uint64_t token_;
    bool closed_ = false;
};

}  // namespace vescomm::internal
