// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/pool.h"
#include "transport/transport.h"
#include "transport/ucx_library.h"
#include "transport/ucx_wire.h"
#include "transport/ucx_worker.h"

namespace vescomm {

class UcxContext;
class UcxEndpoint;
class UcxQueue;

// A put that has not ended.
struct UcxPut {
    UcxPut *next = nullptr;
    bool active = false;  // taken, not ended
    UcxContext *context = nullptr;
    Put put;
    std::uint64_t sent = 0;  // bytes handed to UCX
    bool complete = false;  // everything is, the signal included
    int under_way = 0;  // pieces that UCX has not sent
    ucp_mem_h source = nullptr;  // the registered memory that holds the bytes; nullptr: none
    std::uint32_t *uses = nullptr;  // of the target memory; nullptr: no bytes
    // Of a batch: the parts, one after another. The room is kept from put to put.
    std::vector<std::byte> batch;

    void clear() noexcept {
        context = nullptr;
        put = {};
        sent = 0;
        complete = false;
        under_way = 0;
        source = nullptr;
        uses = nullptr;
        batch.clear();
    }
    bool is_batch() const noexcept { return !batch.empty(); }
    std::uint64_t bytes() const noexcept { return is_batch() ? batch.size() : put.bytes; }
    const std::byte *from() const noexcept { return is_batch() ? batch.data() : put.from; }
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
struct UcxHub {
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

    UcxContext *find(std::uint32_t id) const noexcept {
        const auto found = contexts.find(id);
        return found == contexts.end() ? nullptr : found->second;
    }

    // From now on messages find a context. Throws where its id is in use.
    void add(UcxContext &context);
    // Ends that.
    void remove(const UcxContext &context) noexcept;
    // Nothing here refers to a context any more. UCX must not either.
    void forget(const UcxContext &context) noexcept;

    // Something happened that a thread of that communicator may sleep for.
    void note(UcxContext &context) noexcept;

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
    std::unordered_map<std::uint32_t, UcxContext *> contexts;
    std::vector<UcxContext *> news;  // those for whose threads something has come
    bool signalled = false;  // more than the end of a put, since progress() looked last
    std::vector<UcxQueue *> ready;  // those that can send more
    std::size_t queues = 0;  // of all contexts
    const UcxContext *putting = nullptr;  // a call of put() of that communicator is under way
};

}  // namespace vescomm
