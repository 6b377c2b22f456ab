// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/failure.h"
#include "transport/transport.h"
#include "transport/ucx_inbox.h"
#include "transport/ucx_library.h"
#include "transport/ucx_memories.h"
#include "transport/ucx_wire.h"

namespace vescomm {

class UcxStream;

// One put or signal on its way.
struct UcxOperation {
    UcxOperation *next = nullptr;
    UcxStream *stream = nullptr;
    Message message;  // read by UCX until it has sent it
    const std::byte *from = nullptr;
    UcxTarget target;                // of a large put; without key for what fits in one message
    ucp_mem_h source = nullptr;      // the registered memory that `from` lies in, or nullptr
    std::uint32_t *uses = nullptr;   // counted down when the operation ends
    std::atomic<std::uint32_t> *pending = nullptr;
    int open_requests = 0;           // of UCX
    bool orphaned = false;           // no longer in the queue: ends with its last request
};

// What the streams of one transport share.
struct UcxStreams {
    UcxStreams(const UcxLibrary &ucx, const UcxInbox &inbox, Failure &failure, int rank)
        : ucx(ucx), inbox(inbox), failure(failure), rank(rank) {}

    // Never gives memory back to the system: as many as were ever under way at once. nullptr: there
    // is no memory.
    UcxOperation *take() noexcept;
    void give_back(UcxOperation *operation) noexcept;

    // Goes on with every stream for which a callback of UCX arrived.
    void pump_ready() noexcept;

    const UcxLibrary &ucx;
    const UcxInbox &inbox;
    Failure &failure;
    const int rank;
    bool stopping = false;              // errors of endpoints are expected
    std::vector<UcxStream *> ready;     // capacity for every stream
    std::deque<UcxOperation> all;       // stable addresses
    UcxOperation *free = nullptr;
};

// The puts and signals of this rank to one peer, in order.
//
//     small put, signal    one active message: [header | bytes]
//     large put            the bytes straight into the peer's memory; a flush; then a message with
//                          the signal
//
// The flush says that the bytes are there; UCX's fence does not say so when there are several lanes.
// While it is under way, later large puts start as well, but no message: it would overtake. So the
// queue holds what waits behind the first large put that has not arrived.
class UcxStream {
public:
    UcxStream(UcxStreams &streams, ucp_worker_h worker, int peer)
        : streams_(streams), worker_(worker), peer_(peer) {}
    UcxStream(const UcxStream &) = delete;
    UcxStream &operator=(const UcxStream &) = delete;

    // Makes the endpoint, without waiting for it to work. Throws.
    void connect(const Address &address);
    int peer() const { return peer_; }
    ucp_ep_h endpoint() const { return endpoint_; }

    // Sends a message without bytes ahead of everything that is queued.
    void tell(MessageKind kind) noexcept;

    // Takes an operation from UcxStreams::take(), and ends it some time later, in any case.
    void push(UcxOperation *operation) noexcept;

    // Starts whatever can start.
    void pump() noexcept;

    // All messages are handed to the network, as far as this side can tell.
    bool told() const { return messages_under_way_ == 0 || failed_; }
    bool idle() const { return queue_.head == nullptr && requests_under_way_ == 0; }
    bool failed() const { return failed_; }

    // Gives up everything and closes the endpoint by force.
    void close() noexcept;

private:
    friend struct UcxStreams;

    // Large puts to one peer at the same time: hides the round trip of the flush; more would only
    // lengthen UCX's own queues.
    static constexpr int most_large_puts = 16;

    struct Queue {
        UcxOperation *head = nullptr;
        UcxOperation *tail = nullptr;
        UcxOperation *not_started = nullptr;  // the first one that has not been looked at yet
    };

    static void message_sent(void *request, ucs_status_t status, void *operation);
    static void bytes_read(void *request, ucs_status_t status, void *operation);
    static void bytes_arrived(void *request, ucs_status_t status, void *operation);
    static void endpoint_failed(void *stream, ucp_ep_h endpoint, ucs_status_t status);

    UcxOperation *pop() noexcept;
    void send(UcxOperation *operation) noexcept;
    void start_large(UcxOperation *operation) noexcept;
    void request_done(UcxOperation *operation, ucs_status_t status) noexcept;
    void source_read(UcxOperation *operation) noexcept;
    void end(UcxOperation *operation) noexcept;
    void give_up() noexcept;
    void fail(ucs_status_t status, const char *doing) noexcept;
    void get_ready() noexcept;

    UcxStreams &streams_;
    ucp_worker_h worker_;
    const int peer_;
    ucp_ep_h endpoint_ = nullptr;
    std::uint64_t token_ = 0;
    std::uint64_t messages_sent_ = 0;
    Queue queue_;
    int large_puts_ = 0;          // started, not arrived
    int messages_under_way_ = 0;  // handed to UCX, not sent
    int requests_under_way_ = 0;
    bool ready_ = false;
    bool failed_ = false;
};

}  // namespace vescomm
