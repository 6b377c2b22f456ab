// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transport/ucx_hub.h"

namespace vescomm {

// The messages that arrive at this process: finds out the sender and the communicator of each.
// Those for a communicator that is not open here, or that its sender is not in, are dropped.
//
// A message whose header cannot be right breaks all communicators that its sender is in; where the
// sender cannot be told, all of the fabric. Everything else is the business of the communicator
// (ucx_inbox.h).
//
// Threads: everything under the mutex of the fabric.
class UcxReceiver {
public:
    // Throws.
    explicit UcxReceiver(UcxHub &hub);
    UcxReceiver(const UcxReceiver &) = delete;
    UcxReceiver &operator=(const UcxReceiver &) = delete;

    // Has messages delivered here from now on. Throws.
    void open();
    // Ignores whatever arrives from now on.
    void close() noexcept { closed_ = true; }

    // Known to those who may send here.
    std::uint64_t token() const { return token_; }

private:
    static ucs_status_t message_arrived(void *receiver, const void *header,
                                        std::size_t header_bytes, void *data,
                                        std::size_t data_bytes,
                                        const ucp_am_recv_param_t *parameters);

    bool take(UcxEndpoint &endpoint, const Message &message, void *data, bool rendezvous) noexcept;
    void refuse(UcxEndpoint *sender, const Message &message, const char *why) noexcept;

    UcxHub &hub_;
    const std::uint64_t token_;
    bool closed_ = false;
};

}  // namespace vescomm
