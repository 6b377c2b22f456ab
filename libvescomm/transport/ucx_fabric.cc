// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_fabric.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "bootstrap/tcp_address.h"
#include "transport/ucx_endpoint.h"

namespace vescomm::internal {
namespace {

// Calls of UCX's progress per call of ours, so that a busy network cannot hold the caller.
constexpr int max_rounds = 64;

// Time that an ending communicator waits for UCX to release its memory.
constexpr double grace_seconds = 1.0;

// Consecutive calls of UCX's progress without effect after which an endpoint counts as closed.
constexpr int closing_phases = 100;

}  // namespace

std::shared_ptr<UcxFabric> UcxFabric::connect(Control &control, const std::vector<bool> &peers,
                                              const Failure &failure, Deadline deadline) {
    std::shared_ptr<UcxFabric> fabric(
        new UcxFabric(load_ucx(), control.rank(), peers, interface_of(control.local_address())));
    fabric->wire_up(control, failure, deadline);
    return fabric;
}

UcxFabric::~UcxFabric() {
    if (inherited() || abandoned_) {
        worker_.abandon();
        return;
    }
    if (!wired_) {
        // A peer may have died during wire-up. Closing such an endpoint makes UCX 1.13 abort the
        // process (its assertions in tcp_ep.c and wireup_ep.c). No memory has been registered, so
        // the worker is leaked: it does no harm if it is never progressed again.
        worker_.abandon();
        return;
    }
    receiver_.close();
    end_worker();
}

// Closes everything, after all communicators have ended or failed.
void UcxFabric::end_worker() noexcept {
    if (std::exchange(ended_, true)) return;
    for (const auto &endpoint : shared_.endpoints)
        if (endpoint) endpoint->close();
    finish_closing();
    worker_.destroy_worker();
    shared_.end_all();
}

// Closing continues within UCX, also in calls that report no progress. Unfinished work is leaked
// when the worker is destroyed, and a peer does not observe the close before it is finished.
void UcxFabric::finish_closing() noexcept {
    const Deadline closed = Deadline::after(grace_seconds);
    for (int quiet = 0; quiet < closing_phases && !closed.expired();)
        quiet = shared_.ucx.worker_progress(worker_.handle()) != 0 ? 0 : quiet + 1;
}

bool UcxFabric::inherited() const noexcept {
    return getpid() != process_;
}

bool UcxFabric::connects(int process) const noexcept {
    const std::lock_guard lock(mutex_);
    return reaches(process) && !shared_.endpoint(process)->failed();
}

// ---- communicators ----

void UcxFabric::open(UcxContext &context) {
    const std::lock_guard lock(mutex_);
    shared_.add(context);
    for (const auto &endpoint : shared_.endpoints)
        if (endpoint && endpoint->failed()) context.lose(*endpoint);
}

void UcxFabric::close(UcxContext &context, double patience_seconds) noexcept {
    std::unique_lock lock(mutex_);
    // Peers that have left may be gone: reads their goodbyes before anything is sent.
    if (!ended_) step();
    shared_.remove(context);
    for (const auto &queue : context.queues)
        if (queue) queue->drop();
    if (!ended_) context.inbox.close();
    for (std::size_t peer = 0; peer < context.queues.size(); ++peer)
        if (context.queues[peer] && !context.left[peer])
            context.queues[peer]->endpoint().send_control(MessageKind::goodbye, context.id);
    if (!wait(lock, grace_seconds, [&] { return !context.busy(); })) give_up(lock, context);
    // Sends the goodbyes, so that peers that are about to stop do not report the end as a failure.
    wait(lock, patience_seconds, [&] {
        for (const auto &queue : context.queues)
            if (queue && !queue->endpoint().failed() && !queue->endpoint().idle()) return false;
        return true;
    });
    shared_.forget(context);
    context.memories.forget_all();
}

// Forces UCX to release memory that it still holds after the grace period.
void UcxFabric::give_up(std::unique_lock<std::mutex> &lock, UcxContext &context) noexcept {
    if (worker_.over_tcp()) return abandon();
    for (std::size_t peer = 0; peer < context.queues.size(); ++peer) {
        if (!context.busy(static_cast<int>(peer))) continue;
        UcxEndpoint &endpoint = context.queues[peer]->endpoint();
        endpoint.fail("closed the connection",
                      "another communicator that uses it has ended, and bytes of that one were "
                      "stuck in the network");
        endpoint.close();
    }
    const bool let_go = wait(lock, grace_seconds, [&] { return !context.busy(); });
    if (ended_) return;
    if (let_go) return finish_closing();
    fail_all();
    end_worker();
}

// Over TCP, UCX reads and writes memory only while its worker makes progress. This worker is never
// progressed again, and is leaked. Closing an endpoint whose socket takes no more bytes makes UCX
// 1.13 use freed memory, in uct_tcp_iface_progress(), as soon as the peer closes its end too.
void UcxFabric::abandon() noexcept {
    fail_all();
    ended_ = true;
    abandoned_ = true;
    shared_.end_all();
}

void UcxFabric::fail_all() noexcept {
    for (const auto &endpoint : shared_.endpoints)
        if (endpoint)
            endpoint->fail("gave up the connection",
                           "another communicator of this process has ended, and bytes of that one "
                           "were stuck in the network");
    for (const auto &[id, context] : shared_.contexts) context->inbox.close();
}

void UcxFabric::put(UcxContext &context, int, const Put &put, PutMemory *memory) noexcept {
    UcxPut *taken = shared_.puts.take();
    if (taken == nullptr) {
        if (put.pending != nullptr) put.pending->fetch_sub(1, std::memory_order_release);
        return context.run_out();
    }
    taken->clear();
    taken->context = &context;
    taken->put = put;
    if (memory != nullptr) {
        taken->uses = &memory->uses;
        ++memory->uses;
        if (const PutMemory *source = context.memories.holding(put.from, put.bytes))
            taken->source = registration_of(*source);
    }
    shared_.putting = &context;
    context.queues[static_cast<std::size_t>(put.peer)]->push(taken);
    shared_.putting = nullptr;
}

// ---- progress ----

bool UcxFabric::progress() noexcept {
    // The thread that holds the mutex advances everything and wakes the threads that wait for it.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    bool any = false;
    for (int round = 0; round < max_rounds; ++round) {
        const bool moved = move();
        const bool notified = shared_.deliver_news(*this);
        any |= moved || notified;
        // A signal that has arrived is handled before more is received.
        if (std::exchange(shared_.signalled, false) || !moved) break;
    }
    return any;
}

bool UcxFabric::step() noexcept {
    const bool moved = move();
    return shared_.deliver_news(*this) || moved;
}

bool UcxFabric::move() noexcept {
    if (ended_) return false;
    const bool more = !shared_.ready.empty();
    if (more) shared_.pump();
    return shared_.ucx.worker_progress(worker_.handle()) != 0 || more;
}

bool UcxFabric::arm() noexcept {
    const std::lock_guard lock(mutex_);
    return arm_locked();
}

bool UcxFabric::arm_locked() noexcept {
    if (!shared_.news.empty()) return false;
    if (ended_) return true;
    if (!shared_.ready.empty()) return false;
    const ucs_status_t status = shared_.ucx.worker_arm(worker_.handle());
    if (status == UCS_OK || status == UCS_ERR_BUSY) return status == UCS_OK;
    for (const auto &endpoint : shared_.endpoints)
        if (endpoint)
            endpoint->fail("cannot wait for the connection", shared_.ucx.status_string(status));
    return true;
}

// Makes progress until `done` returns true. Returns false when the time has passed first. Other
// threads can take the mutex meanwhile.
template <typename Done>
bool UcxFabric::wait(std::unique_lock<std::mutex> &lock, double seconds, Done done) noexcept {
    const Deadline deadline = Deadline::after(seconds);
    for (;;) {
        if (ended_ || done()) return true;
        if (deadline.expired()) return false;
        if (step() || !arm_locked()) continue;
        lock.unlock();
        pollfd descriptor{worker_.descriptor(), POLLIN, 0};
        poll(&descriptor, 1, 1);
        lock.lock();
    }
}

}  // namespace vescomm::internal
