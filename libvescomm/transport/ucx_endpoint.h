// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/failure.h"
#include "transport/transport.h"
#include "transport/ucx_inbox.h"
#include "transport/ucx_library.h"
#include "transport/ucx_pool.h"
#include "transport/ucx_wire.h"

namespace vescomm {

class UcxEndpoint;

// A message on its way.
struct UcxSending {
    UcxSending *next = nullptr;
    UcxEndpoint *endpoint = nullptr;
    Message message;  // read by UCX until it has sent it
    std::atomic<std::uint32_t> *pending = nullptr;
    std::uint32_t *uses = nullptr;  // of the memory; nullptr: none
};

// What the endpoints of one transport share.
struct UcxOutbox {
    const UcxLibrary &ucx;
    const UcxInbox &inbox;
    Failure &failure;
    const int rank;
    bool stopping = false;  // errors are expected
    UcxPool<UcxSending> pool;
};

// The connection from this rank to one peer. Messages arrive in the order in which they are sent.
class UcxEndpoint {
public:
    UcxEndpoint(UcxOutbox &outbox, ucp_worker_h worker, int peer)
        : outbox_(outbox), worker_(worker), peer_(peer) {}
    UcxEndpoint(const UcxEndpoint &) = delete;
    UcxEndpoint &operator=(const UcxEndpoint &) = delete;

    int peer() const { return peer_; }

    // Connects, without waiting for it to work. Throws.
    void connect(const Address &address);

    // Sends a message without bytes that is not a put.
    void tell(MessageKind kind) noexcept;

    // Sends a put whose message is complete but for its sender's part. `source` is the registered
    // memory that holds the bytes, or nullptr. `sending` comes from the pool and goes back there.
    void send(UcxSending *sending, const std::byte *from, ucp_mem_h source) noexcept;

    // Everything has left, as far as this side can tell.
    bool idle() const { return under_way_ == 0; }

    // Gives up whatever is under way. Afterwards worker progress ends the last requests.
    void close() noexcept;

private:
    static void message_sent(void *request, ucs_status_t status, void *sending);
    static void endpoint_failed(void *self, ucp_ep_h endpoint, ucs_status_t status);

    void end(UcxSending *sending) noexcept;
    void fail(ucs_status_t status, const char *doing) noexcept;

    UcxOutbox &outbox_;
    ucp_worker_h worker_;
    const int peer_;
    ucp_ep_h endpoint_ = nullptr;
    std::uint64_t token_ = 0;
    std::uint64_t messages_ = 0;
    int under_way_ = 0;
    bool failed_ = false;
};

}  // namespace vescomm
