// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/fabric_contexts.h"
#include "transport/free_list.h"
#include "transport/queued_put.h"
#include "transport/ucx_library.h"
#include "transport/ucx_wire.h"
#include "transport/ucx_worker.h"

namespace vescomm::internal {

class UcxContext;
class UcxEndpoint;
class UcxQueue;

// A put that has not ended.
struct UcxPut : QueuedPut {
    UcxPut *next = nullptr;
    bool active = false;  // taken from the free list, not ended
    UcxContext *context = nullptr;
    bool complete = false;  // all bytes and the signal have been given to UCX
    int under_way = 0;  // pieces that UCX has not sent
    ucp_mem_h source = nullptr;  // registered memory that holds the source; nullptr: none

    void clear() noexcept {
        QueuedPut::clear();
        context = nullptr;
        complete = false;
        under_way = 0;
        source = nullptr;
    }
};

// A message that UCX has not sent; UCX reads the header until then.
struct UcxPiece {
    UcxPiece *next = nullptr;
    UcxEndpoint *endpoint = nullptr;
    UcxQueue *queue = nullptr;  // nullptr: the message does not belong to a put
    UcxPut *put = nullptr;
    UcxMessage message;
};

// State shared by the endpoints and the communicators of one fabric.
struct UcxShared : FabricContexts<UcxContext> {
    // `peers`: by number of the process, true to make an endpoint to it. Throws.
    UcxShared(const UcxLibrary &ucx, const UcxWorker &worker, int process,
              const std::vector<bool> &peers);
    ~UcxShared();
    UcxShared(const UcxShared &) = delete;
    UcxShared &operator=(const UcxShared &) = delete;

    // Returns nullptr if there is no endpoint to the process.
    UcxEndpoint *endpoint(int process) const noexcept {
        const auto at = static_cast<std::size_t>(process);
        return at < endpoints.size() ? endpoints[at].get() : nullptr;
    }

    // Adds a context, so that messages can find it. Throws if its id is in use.
    void add(UcxContext &context);
    // Removes it: messages do not find it any more.
    void remove(const UcxContext &context) noexcept;
    // Drops all remaining references to a context. UCX must have none either.
    void forget(const UcxContext &context) noexcept;

    // Sends a limited number of queued pieces, so that the caller can also receive.
    void pump() noexcept;

    // Reports the end of a put to its owner and returns it to the free list.
    void end(UcxPut *put) noexcept;

    // Ends the puts whose requests were destroyed with the worker.
    void end_all() noexcept;

    const UcxLibrary &ucx;
    const UcxWorker &worker;
    const int process;  // number of this process
    FreeList<UcxPut> puts;
    FreeList<UcxPiece> pieces;
    std::vector<std::unique_ptr<UcxEndpoint>> endpoints;  // by process; nullptr: none
    // a signal has arrived since progress() last checked; the end of a put does not count
    bool signalled = false;
    std::vector<UcxQueue *> ready;  // queues that can send more
    std::size_t queues = 0;  // number of queues of all contexts
    const UcxContext *putting = nullptr;  // context whose put() is running; nullptr: none
};

}  // namespace vescomm::internal
