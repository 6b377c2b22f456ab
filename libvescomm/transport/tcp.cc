// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp.h"

#include "base/error.h"

namespace vescomm {
namespace {

// How long a transport waits, when it stops or forgets a memory, for what should take no time.
constexpr double grace_seconds = 1.0;

class TcpTransport final : public Transport {
public:
    TcpTransport(std::shared_ptr<TcpFabric> fabric, std::uint32_t context, int rank,
                 const std::vector<int> &peers, Failure &failure, std::function<void()> on_signal)
        : fabric_(std::move(fabric)),
          peers_(peers),
          failure_(failure),
          context_(context, rank, peers, failure, std::move(on_signal)) {
        for (const int process : peers_)
            if (process >= 0 && !fabric_->reaches(process))
                throw Error(VESCOMM_ERROR_INTERNAL, "process " + std::to_string(process) +
                                                        " is not connected to the TCP fabric");
        fabric_->open(context_);
    }
    ~TcpTransport() override { stop(); }

    std::string_view name() const override { return "tcp"; }
    bool maps(int) const noexcept override { return false; }
    bool puts(int peer) const noexcept override {
        const auto at = static_cast<std::size_t>(peer);
        return at < peers_.size() && peers_[at] >= 0;
    }
    bool supports(vescomm_memory_kind_t kind) const noexcept override {
        return kind == VESCOMM_HOST;
    }

    std::string offer(MemoryId memory, std::byte *base, std::uint64_t bytes) override;
    void accept(MemoryId memory, int peer, std::string_view offer) override;
    void forget(MemoryId memory) noexcept override;

    void put(const Put &put) noexcept override;
    void signal(int peer, SignalName signal, std::uint64_t value) noexcept override;
    bool keeps_early() const noexcept override { return true; }
    void expect(int peer, SignalName signal, std::uint64_t value) noexcept override;
    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        return context_.inbox.signalled(peer, signal);
    }
    bool progress() noexcept override { return !stopped_ && fabric_->progress(); }
    int descriptor() const noexcept override { return stopped_ ? -1 : fabric_->descriptor(); }
    bool arm() noexcept override { return stopped_ || fabric_->arm(); }
    void stop() noexcept override;

private:
    void check_running() const;
    void refuse(const Put &put, const char *why) noexcept;
    const char *find_target(const Put &put, std::uint32_t *&uses) noexcept;

    const std::shared_ptr<TcpFabric> fabric_;
    const std::vector<int> peers_;
    Failure &failure_;
    TcpContext context_;
    bool stopped_ = false;
};

// ---- memory ----

void TcpTransport::check_running() const {
    failure_.check();
    if (stopped_)
        throw Error(VESCOMM_ERROR_INTERNAL, "the transport tcp is used after it has been stopped");
}

std::string TcpTransport::offer(MemoryId memory, std::byte *base, std::uint64_t bytes) {
    check_running();
    const std::lock_guard lock(fabric_->mutex());
    return context_.memories.offer(memory, base, bytes);
}

void TcpTransport::accept(MemoryId memory, int peer, std::string_view offer) {
    check_running();
    if (offer.empty() || !puts(peer)) return;
    const std::lock_guard lock(fabric_->mutex());
    context_.memories.accept(memory, peer, offer);
}

void TcpTransport::forget(MemoryId id) noexcept {
    if (stopped_) return;
    // A broken communicator moves nothing any more: waiting for it would be in vain.
    if (failure_.broken()) return stop();
    const Deadline deadline = Deadline::after(grace_seconds);
    for (;;) {
        {
            const std::lock_guard lock(fabric_->mutex());
            TcpMemory *memory = context_.memories.find(id);
            if (memory == nullptr || memory->uses == 0) return context_.memories.forget(id);
            fabric_->step();
        }
        if (!deadline.expired()) continue;
        failure_.set(VESCOMM_ERROR_INTERNAL, "memory " + std::to_string(id) +
                                                 " is freed while puts to it are under way over "
                                                 "TCP");
        return stop();
    }
}

// ---- sending ----

void TcpTransport::refuse(const Put &put, const char *why) noexcept {
    if (put.pending != nullptr) put.pending->fetch_sub(1, std::memory_order_release);
    if (why == nullptr || failure_.broken()) return;
    try {
        failure_.set(VESCOMM_ERROR_INTERNAL,
                     "a put of " + std::to_string(put.bytes) + " bytes to offset " +
                         std::to_string(put.offset) + " of memory " + std::to_string(put.memory) +
                         " of rank " + std::to_string(put.peer) + ", channel " +
                         std::to_string(put.signal.channel) + " flag " +
                         std::to_string(put.signal.flag) + ", is impossible: " + why);
    } catch (...) {
        failure_.set(VESCOMM_ERROR_INTERNAL, {});
    }
}

// Checks where a put goes. Returns nullptr, or what is wrong with it.
const char *TcpTransport::find_target(const Put &put, std::uint32_t *&uses) noexcept {
    if (put.bytes == 0) return nullptr;
    TcpMemory *memory = context_.memories.find(put.memory);
    const auto peer = static_cast<std::size_t>(put.peer);
    if (memory == nullptr || !memory->targets[peer].accepted)
        return "that rank has not offered this memory";
    if (!within(put.offset, put.bytes, memory->targets[peer].bytes))
        return "it does not fit into that memory";
    uses = &memory->uses;
    return nullptr;
}

void TcpTransport::put(const Put &put) noexcept {
    if (stopped_) return refuse(put, nullptr);
    if (!puts(put.peer)) return refuse(put, "that rank is not reached over TCP");
    if (put.signal.channel >= most_channels || put.signal.flag >= flags_per_channel ||
        put.early_flag >= flags_per_channel)
        return refuse(put, "there is no such signal");
    const std::lock_guard lock(fabric_->mutex());
    std::uint32_t *uses = nullptr;
    if (const char *why = find_target(put, uses)) return refuse(put, why);
    fabric_->put(context_, peers_[static_cast<std::size_t>(put.peer)], put, uses);
}

void TcpTransport::signal(int peer, SignalName signal, std::uint64_t value) noexcept {
    Put put;
    put.peer = peer;
    put.signal = signal;
    put.value = value;
    this->put(put);
}

void TcpTransport::expect(int peer, SignalName signal, std::uint64_t value) noexcept {
    if (stopped_ || !puts(peer)) return;
    const std::lock_guard lock(fabric_->mutex());
    context_.inbox.expect(peer, signal, value);
}

// ---- the end ----

void TcpTransport::stop() noexcept {
    if (stopped_) return;
    stopped_ = true;
    if (fabric_->inherited()) return;
    fabric_->close(context_, failure_.broken() ? 0.0 : grace_seconds);
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(std::shared_ptr<TcpFabric> fabric,
                                              std::uint32_t context, int rank,
                                              const std::vector<int> &peers, Failure &failure,
                                              std::function<void()> on_signal) {
    return std::make_unique<TcpTransport>(std::move(fabric), context, rank, peers, failure,
                                          std::move(on_signal));
}

}  // namespace vescomm
