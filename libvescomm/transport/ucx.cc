// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx.h"

#include <poll.h>

#include <algorithm>

#include "base/error.h"
#include "bootstrap/tcp_address.h"
#include "transport/ucx_endpoint.h"
#include "transport/ucx_inbox.h"
#include "transport/ucx_memories.h"
#include "transport/ucx_wire.h"
#include "transport/ucx_worker.h"

namespace vescomm {
namespace {

// Rounds of UCX's progress in one call of ours, so that a busy network cannot keep the caller.
constexpr int most_rounds = 64;

// How long a transport waits, when it stops or forgets a memory, for what should take no time.
constexpr double grace_seconds = 1.0;

// Calls of UCX's progress without effect after which an endpoint is taken to be closed.
constexpr int closing_rounds = 100;

// How long wiring sleeps at most before it looks at the deadline again.
constexpr int wiring_poll_milliseconds = 20;

std::string rank_name(int rank) {
    return "rank " + std::to_string(rank);
}

class UcxTransport final : public Transport {
public:
    UcxTransport(int rank, int ranks, const std::vector<bool> &peers, const std::string &interface,
                 Failure &failure, std::function<void()> on_signal);
    ~UcxTransport() override { stop(); }

    void wire(Control &control, Deadline deadline);

    std::string_view name() const override { return "ucx"; }
    bool maps(int) const noexcept override { return false; }
    bool puts(int peer) const noexcept override { return endpoints_[peer] != nullptr; }
    bool supports(vescomm_memory_kind_t kind) const noexcept override {
        return kind == VESCOMM_HOST;
    }

    std::string offer(MemoryId memory, std::byte *base, std::uint64_t bytes) override;
    void accept(MemoryId memory, int peer, std::string_view offer) override;
    void forget(MemoryId memory) noexcept override;

    void put(const Put &put) noexcept override;
    void signal(int peer, SignalName signal, std::uint64_t value) noexcept override;
    bool keeps_early() const noexcept override { return true; }
    void expect(int peer, SignalName signal, std::uint64_t value) noexcept override {
        if (!stopped_ && puts(peer)) inbox_.expect(peer, signal, value);
    }
    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        return inbox_.signalled(peer, signal);
    }
    bool progress() noexcept override;
    int descriptor() const noexcept override { return worker_.descriptor(); }
    bool arm() noexcept override;
    void stop() noexcept override;

private:
    enum class Moved { nothing, some, signals };
    Moved step() noexcept;
    bool idle() const;
    void wait_for_wiring(Deadline deadline);
    bool wired(std::vector<bool> &welcomed);
    std::string not_wired() const;
    void check_running() const;
    void refuse(const Put &put, const char *why,
                vescomm_status_t status = VESCOMM_ERROR_INTERNAL) noexcept;

    const UcxLibrary &ucx_;
    const int rank_;
    Failure &failure_;
    const std::function<void()> on_signal_;
    UcxWorker worker_;
    UcxMemories memories_;
    UcxInbox inbox_;
    UcxOutbox outbox_;
    std::vector<std::unique_ptr<UcxEndpoint>> endpoints_;  // by rank; nullptr: not a peer
    bool wired_ = false;
    bool stopped_ = false;
};

// ---- wiring ----

UcxTransport::UcxTransport(int rank, int ranks, const std::vector<bool> &peers,
                           const std::string &interface, Failure &failure,
                           std::function<void()> on_signal)
    : ucx_(load_ucx()),
      rank_(rank),
      failure_(failure),
      on_signal_(std::move(on_signal)),
      worker_(ucx_, static_cast<std::size_t>(std::count(peers.begin(), peers.end(), true)),
              interface),
      memories_(ucx_, worker_, rank, ranks),
      inbox_(ucx_, worker_.handle(), rank, peers, failure, memories_),
      outbox_{ucx_, inbox_, failure, rank, worker_.piece_bytes(), false, {}, {}, {}},
      endpoints_(static_cast<std::size_t>(ranks)) {
    inbox_.open();
    outbox_.ready.reserve(2 * endpoints_.size());
    for (int peer = 0; peer < ranks; ++peer)
        if (peers[peer])
            endpoints_[peer] = std::make_unique<UcxEndpoint>(outbox_, worker_.handle(), peer);
}

// UCX connects at the first message. Sending it here, and hearing both ways, keeps surprises out of
// the first collective: "hello" says that the sender reaches us, "welcome" that we reach it.
void UcxTransport::wire(Control &control, Deadline deadline) {
    unsigned major = 0, minor = 0, release = 0;
    ucx_.get_version(&major, &minor, &release);
    Address own;
    own.ucx_major = major;
    own.ucx_minor = minor;
    own.rank = static_cast<std::uint32_t>(rank_);
    own.token = inbox_.token();
    own.worker = worker_.address();
    const auto addresses = control.all_gather("ucx addresses", seal(own), deadline);
    for (const auto &endpoint : endpoints_) {
        if (!endpoint) continue;
        const Address address = open_address(addresses[endpoint->peer()], endpoint->peer());
        if (address.ucx_major != major || address.ucx_minor != minor)
            throw Error(VESCOMM_ERROR_MISMATCH,
                        rank_name(rank_) + " has UCX " + std::to_string(major) + "." +
                            std::to_string(minor) + " and " + rank_name(endpoint->peer()) +
                            " has UCX " + std::to_string(address.ucx_major) + "." +
                            std::to_string(address.ucx_minor) +
                            ", which cannot talk to one another; install the same on all nodes");
        endpoint->connect(address);
    }
    while (!idle()) wait_for_wiring(deadline);
    for (const auto &endpoint : endpoints_)
        if (endpoint) endpoint->tell(MessageKind::hello);
    std::vector<bool> welcomed(endpoints_.size());
    while (!wired(welcomed)) wait_for_wiring(deadline);
    failure_.check();
    wired_ = true;
}

bool UcxTransport::idle() const {
    return std::all_of(endpoints_.begin(), endpoints_.end(),
                       [](const auto &endpoint) { return !endpoint || endpoint->idle(); });
}

void UcxTransport::wait_for_wiring(Deadline deadline) {
    failure_.check();
    if (deadline.expired())
        throw Error(VESCOMM_ERROR_TIMEOUT,
                    rank_name(rank_) + " has not connected over UCX with " + not_wired() +
                        " in time; check that the nodes reach one another on the interfaces "
                        "that UCX picks, or set UCX_NET_DEVICES to the right one");
    if (step() != Moved::nothing || !arm()) return;
    pollfd descriptor{worker_.descriptor(), POLLIN, 0};
    poll(&descriptor, 1, wiring_poll_milliseconds);
}

bool UcxTransport::wired(std::vector<bool> &welcomed) {
    bool wired = true;
    for (const auto &endpoint : endpoints_) {
        if (!endpoint) continue;
        const int peer = endpoint->peer();
        if (inbox_.heard(peer, MessageKind::goodbye))
            throw Error(VESCOMM_ERROR_PEER_FAILED, rank_name(peer) + " gave up while " +
                                                       rank_name(rank_) +
                                                       " connected to it over UCX; see its output");
        if (inbox_.heard(peer, MessageKind::hello) && !welcomed[peer]) {
            welcomed[peer] = true;
            endpoint->tell(MessageKind::welcome);
        }
        // Our welcome must have left: the peer needs it, and we may be busy elsewhere soon.
        wired =
            wired && welcomed[peer] && inbox_.heard(peer, MessageKind::welcome) && endpoint->idle();
    }
    return wired;
}

std::string UcxTransport::not_wired() const {
    std::string names;
    for (const auto &endpoint : endpoints_)
        if (endpoint && !inbox_.heard(endpoint->peer(), MessageKind::welcome))
            names += (names.empty() ? "" : ", ") + rank_name(endpoint->peer());
    return names.empty() ? "its peers" : names;
}

// ---- memory ----

void UcxTransport::check_running() const {
    failure_.check();
    if (stopped_) throw Error(VESCOMM_ERROR_INTERNAL, "UCX is used after it has been stopped");
}

std::string UcxTransport::offer(MemoryId memory, std::byte *base, std::uint64_t bytes) {
    check_running();
    return memories_.offer(memory, base, bytes);
}

void UcxTransport::accept(MemoryId memory, int peer, std::string_view offer) {
    failure_.check();
    if (!offer.empty() && puts(peer)) memories_.accept(memory, peer, offer);
}

void UcxTransport::forget(MemoryId id) noexcept {
    UcxMemory *memory = memories_.find(id);
    if (memory == nullptr) return;
    // A broken communicator moves nothing any more: waiting for it would be in vain.
    if (failure_.broken()) stop();
    const Deadline deadline = Deadline::after(grace_seconds);
    while (!stopped_ && memory->uses > 0) {
        step();
        if (!deadline.expired()) continue;
        failure_.set(VESCOMM_ERROR_INTERNAL, "memory " + std::to_string(id) + " is freed while " +
                                                 std::to_string(memory->uses) +
                                                 " puts to it are under way over UCX");
        stop();
    }
    memories_.forget(id);
}

// ---- sending ----

void UcxTransport::refuse(const Put &put, const char *why, vescomm_status_t status) noexcept {
    if (put.pending != nullptr) put.pending->fetch_sub(1, std::memory_order_release);
    if (why == nullptr || failure_.broken()) return;
    try {
        failure_.set(status, "a put of " + std::to_string(put.bytes) + " bytes to offset " +
                                 std::to_string(put.offset) + " of memory " +
                                 std::to_string(put.memory) + " of " + rank_name(put.peer) +
                                 ", channel " + std::to_string(put.signal.channel) + " flag " +
                                 std::to_string(put.signal.flag) + ", is impossible: " + why);
    } catch (...) {
        failure_.set(status, {});
    }
}

void UcxTransport::put(const Put &put) noexcept {
    if (stopped_) return refuse(put, nullptr);
    if (!puts(put.peer)) return refuse(put, "that rank is not reached over UCX");
    if (put.signal.channel >= most_channels || put.signal.flag >= flags_per_channel)
        return refuse(put, "there is no such signal");

    UcxMemory *memory = nullptr;
    if (put.bytes > 0) {
        memory = memories_.find(put.memory);
        if (memory == nullptr || !memory->targets[put.peer].accepted)
            return refuse(put, "that rank has not offered this memory");
        if (!within(put.offset, put.bytes, memory->targets[put.peer].bytes))
            return refuse(put, "it does not fit into that memory");
    }

    UcxPut *taken = outbox_.puts.take();
    if (taken == nullptr)
        return refuse(put, "there is no memory left", VESCOMM_ERROR_OUT_OF_MEMORY);
    taken->clear();
    taken->put = put;
    if (memory != nullptr) {
        taken->uses = &memory->uses;
        ++memory->uses;
        const UcxMemory *holding = memories_.holding(put.from, put.bytes);
        if (holding != nullptr) taken->source = holding->handle;
    }
    endpoints_[put.peer]->push(taken);
}

void UcxTransport::signal(int peer, SignalName signal, std::uint64_t value) noexcept {
    Put put;
    put.peer = peer;
    put.signal = signal;
    put.value = value;
    this->put(put);
}

// ---- progress ----

UcxTransport::Moved UcxTransport::step() noexcept {
    const bool more = !outbox_.ready.empty();
    outbox_.pump();
    const bool any = ucx_.worker_progress(worker_.handle()) != 0 || more;
    if (!inbox_.take_news()) return any ? Moved::some : Moved::nothing;
    if (on_signal_) on_signal_();
    return Moved::signals;
}

// Somebody may have waited for a signal that has come, which is then more urgent than what else
// may.
bool UcxTransport::progress() noexcept {
    if (stopped_) return false;
    Moved moved = step();
    const bool any = moved != Moved::nothing;
    for (int rounds = 1; rounds < most_rounds && moved == Moved::some; ++rounds) moved = step();
    return any;
}

bool UcxTransport::arm() noexcept {
    if (stopped_) return true;
    if (!outbox_.ready.empty()) return false;
    const ucs_status_t status = ucx_.worker_arm(worker_.handle());
    if (status == UCS_OK || status == UCS_ERR_BUSY) return status == UCS_OK;
    failure_.set(VESCOMM_ERROR_SYSTEM,
                 std::string("UCX cannot arm its descriptor: ") + ucx_.status_string(status));
    return true;
}

// ---- the end ----

void UcxTransport::stop() noexcept {
    if (stopped_) return;
    outbox_.stopping = true;
    if (!wired_) {
        // A peer died while it was being connected. To close such an endpoint makes UCX 1.13 abort
        // the process, by assertions of its own in tcp_ep.c and wireup_ep.c. No memory has been
        // registered yet, so a worker that is never progressed again can do no harm: it stays.
        stopped_ = true;
        inbox_.close();
        worker_.abandon();
        return;
    }
    for (const auto &endpoint : endpoints_)
        if (endpoint) endpoint->tell(MessageKind::goodbye);

    // So that peers that are about to stop as well do not take this for a failure.
    const Deadline deadline = Deadline::after(failure_.broken() ? 0.0 : grace_seconds);
    while (!idle() && !deadline.expired()) ucx_.worker_progress(worker_.handle());

    stopped_ = true;
    inbox_.close();
    for (const auto &endpoint : endpoints_)
        if (endpoint) endpoint->close();
    // Closing goes on within UCX, also in calls that report nothing done; it leaks what is left
    // when its worker is destroyed.
    const Deadline closed = Deadline::after(grace_seconds);
    for (int quiet = 0; quiet < closing_rounds && !closed.expired();)
        quiet = ucx_.worker_progress(worker_.handle()) != 0 ? 0 : quiet + 1;
    worker_.destroy_worker();
    outbox_.end_all();
    memories_.forget_all();
    worker_.destroy();
}

}  // namespace

std::unique_ptr<Transport> make_ucx_transport(int rank, int ranks, const std::vector<bool> &peers,
                                              Control &control, Failure &failure,
                                              std::function<void()> on_signal, Deadline deadline) {
    auto transport = std::make_unique<UcxTransport>(
        rank, ranks, peers, interface_of(control.local_address()), failure, std::move(on_signal));
    transport->wire(control, deadline);
    return transport;
}

}  // namespace vescomm
