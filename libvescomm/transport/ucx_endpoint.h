// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "transport/ucx_shared.h"

namespace vescomm::internal {

// The connection of this process to another one, shared by all communicators. Messages arrive in
// the order in which they are sent.
//
// Threads: everything under the mutex of the fabric.
class UcxEndpoint {
public:
    UcxEndpoint(UcxShared &shared, int process) : shared_(shared), process_(process) {}
    UcxEndpoint(const UcxEndpoint &) = delete;
    UcxEndpoint &operator=(const UcxEndpoint &) = delete;

    int process() const { return process_; }

    // Starts connecting; idle() becomes true once the network is connected. Nothing may be sent
    // before: a message that waits for its connection makes UCX 1.13 abort when the peer dies.
    // Throws.
    void connect(const UcxAddress &address);

    // Sends a message that does not belong to a put, ahead of the queued puts.
    void send_control(MessageKind kind, std::uint32_t context = 0) noexcept;

    // Sends a piece of a put from the source of its queue. The piece returns to the free list once
    // UCX has sent it.
    void send(UcxPiece *piece, const std::byte *from, ucp_mem_h source) noexcept;

    // UCX is connected and has sent all control messages.
    bool idle() const { return under_way_ == 0; }

    // Returns true if this is the number of the peer's next message, and counts it.
    bool take_number(std::uint64_t number) noexcept { return number == received_++; }

    // ---- failures ----

    bool failed() const { return failed_; }
    // A sentence that gives the reason of the failure, with the rank numbers of one communicator.
    std::string why(int rank, int peer) const;

    // Fails the connection for all communicators that use it; UCX keeps the endpoint. `doing` and
    // `reason` are parts of the sentence, of static storage.
    void fail(const char *doing, const char *reason) noexcept;

    // Makes UCX close the endpoint and cancel all operations on it, which progress of the worker
    // completes.
    void close() noexcept;

    // ---- received from the peer during wire-up ----

    bool said_hello = false;
    bool welcomed = false;
    bool gave_up = false;

private:
    static void connected(void *request, ucs_status_t status, void *self);
    static void piece_sent(void *request, ucs_status_t status, void *piece);
    static void endpoint_failed(void *self, ucp_ep_h endpoint, ucs_status_t status);

    void begin(UcxPiece &piece) noexcept;
    void end(UcxPiece *piece) noexcept;
    void fail(const char *doing, ucs_status_t status) noexcept;

    UcxShared &shared_;
    const int process_;
    ucp_ep_h endpoint_ = nullptr;
    std::uint64_t token_ = 0;
    std::uint64_t messages_ = 0;  // number of messages sent
    std::uint64_t received_ = 0;
    int under_way_ = 0;
    bool failed_ = false;
    const char *doing_ = "";
    const char *reason_ = "";
};

}  // namespace vescomm::internal
