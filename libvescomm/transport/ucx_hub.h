// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/fabric_contexts.h"
#include "transport/pool.h"
#include "transport/queued_put.h"
#include "transport/ucx_library.h"
#include "transport/ucx_wire.h"
#include "transport/ucx_worker.h"

namespace vescomm {

class UcxContext;
class UcxEndpoint;
class UcxQueue;

// A put that has not ended.
struct UcxPut : QueuedPut {
    UcxPut *next = nullptr;
    bool active = false;  // taken, not ended
    UcxContext *context = nullptr;
    bool complete = false;  // everything is, the signal included
    int under_way = 0;  // pieces that UCX has not sent
    ucp_mem_h source = nullptr;  // the registered memory that holds the bytes; nullptr: none

    void clear() noexcept {
        QueuedPut::clear();
        context = nullptr;
        complete = false;
        under_way = 0;
        source = nullptr;
    }
};

// A message that UCX has not sent; it reads the header until then.
struct UcxPiece {
    UcxPiece *next = nullptr;
    UcxEndpoint *endpoint = nullptr;
    UcxQueue *queue = nullptr;  // nullptr: not of a put
    UcxPut *put = nullptr;
    Message message;
};

// State that the endpoints and the communicators of one fabric share.
struct UcxHub : FabricContexts<UcxContext> {
    // `peers`: by number of the process, whether there is an endpoint to it. Throws.
    UcxHub(const UcxLibrary &ucx, const UcxWorker &worker, int process,
           const std::vector<bool> &peers);
    ~UcxHub();
    UcxHub(const UcxHub &) = delete;
    UcxHub &operator=(const UcxHub &) = delete;

    // nullptr: there is none to that process.
    UcxEndpoint *endpoint(int process) const noexcept {
        const auto at = static_cast<std::size_t>(process);
        return at < endpoints.size() ? endpoints[at].get() : nullptr;
    }

    // From now on messages find a context. Throws where its id is in use.
    void add(UcxContext &context);
    // Ends that.
    void remove(const UcxContext &context) noexcept;
    // Nothing here refers to a context any more. UCX must not either.
    void forget(const UcxContext &context) noexcept;

    // Sends more of what waits; at most some of it, so that the caller also gets to receive.
    void pump() noexcept;

    // Tells the owner that a put is over, and takes it back.
    void end(UcxPut *put) noexcept;

    // Once the worker is gone: ends the puts whose requests it has taken along.
    void end_all() noexcept;

    const UcxLibrary &ucx;
    const UcxWorker &worker;
    const int process;  // number of this one
    Pool<UcxPut> puts;
    Pool<UcxPiece> pieces;
    std::vector<std::unique_ptr<UcxEndpoint>> endpoints;  // by process; nullptr: none
    bool signalled = false;  // more than the end of a put, since progress() looked last
    std::vector<UcxQueue *> ready;  // those that can send more
    std::size_t queues = 0;  // of all contexts
    const UcxContext *putting = nullptr;  // a call of put() of that communicator is under way
};

}  // namespace vescomm
