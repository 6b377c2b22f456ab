// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/failure.h"
#include "transport/put_memories.h"
#include "transport/received_signals.h"
#include "transport/transport.h"

namespace vescomm::internal {

// One communicator on a fabric, as a transport: checks the calls, takes the mutex of the fabric,
// and waits when a memory or the communicator ends.
//
// Context: state of one communicator on the fabric; has `memories` and `inbox`, which has `flow`.
// Fabric: opens and closes contexts and sends their puts (TcpFabric, UcxFabric). `name` names the
// transport, `network` is its name in error sentences.
template <typename Fabric, typename Context>
class FabricTransport final : public Transport {
public:
    // `peers`: by rank of the communicator, the number of its process on the fabric, or -1.
    // `arguments`: passed to the constructor of the context.
    template <typename... Arguments>
    FabricTransport(std::shared_ptr<Fabric> fabric, const std::vector<int> &peers, Failure &failure,
                    Arguments &&...arguments)
        : fabric_(std::move(fabric)),
          peers_(require_reached(*fabric_, peers)),
          failure_(failure),
          context_(std::forward<Arguments>(arguments)...) {
        fabric_->open(context_);
    }
    ~FabricTransport() override { stop(); }

    std::string_view name() const override { return Fabric::name; }
    bool maps(int) const noexcept override { return false; }
    bool puts(int peer) const noexcept override {
        const auto at = static_cast<std::size_t>(peer);
        return at < peers_.size() && peers_[at] >= 0;
    }
    bool supports(vescomm_memory_kind_t kind) const noexcept override {
        return kind == VESCOMM_HOST;
    }

    // ---- memory ----

    std::string offer(MemoryId memory, std::byte *base, std::uint64_t bytes) override {
        check_running();
        const std::lock_guard lock(fabric_->mutex());
        return context_.memories.offer(memory, base, bytes);
    }

    void accept(MemoryId memory, int peer, std::string_view offer) override {
        check_running();
        if (offer.empty() || !puts(peer)) return;
        const std::lock_guard lock(fabric_->mutex());
        context_.memories.accept(memory, peer, offer);
    }

    void forget(MemoryId id) noexcept override {
        if (stopped_ || fabric_->inherited()) return;
        // A failed communicator advances nothing, so waiting would never end.
        if (failure_.broken()) return stop();
        const Deadline deadline = Deadline::after(grace_seconds);
        for (;;) {
            {
                const std::lock_guard lock(fabric_->mutex());
                const PutMemory *memory = context_.memories.find(id);
                if (memory == nullptr || memory->uses == 0) return context_.memories.forget(id);
                fabric_->step();
            }
            if (!deadline.expired()) continue;
            fail([&] {
                return "memory " + std::to_string(id) +
                       " is freed while puts to it are under way over " + Fabric::network;
            });
            return stop();
        }
    }

    // ---- sending ----

    void put(const Put &put) noexcept override {
        if (stopped_) return refuse(put, nullptr);
        if (!puts(put.peer)) return refuse(put, "that rank is not reached over this transport");
        if (put.signal.channel >= max_channels || put.signal.flag >= flags_per_channel ||
            put.credit_flag >= flags_per_channel)
            return refuse(put, "there is no such signal");
        const std::lock_guard lock(fabric_->mutex());
        PutMemory *memory = nullptr;
        if (const char *why = context_.memories.find_target(put, memory)) return refuse(put, why);
        if (put.credit != 0) context_.inbox.flow.add(put);
        fabric_->put(context_, peers_[static_cast<std::size_t>(put.peer)], put, memory);
    }

    void signal(int peer, SignalName signal, std::uint64_t value) noexcept override {
        Put put;
        put.peer = peer;
        put.signal = signal;
        put.value = value;
        this->put(put);
    }

    bool keeps_unexpected() const noexcept override { return true; }
    void grant_credit(int peer, SignalName signal, std::uint64_t value) noexcept override {
        if (stopped_ || !puts(peer)) return;
        const std::lock_guard lock(fabric_->mutex());
        context_.inbox.grant_credit(peer, signal, value);
        send_answers(*fabric_, context_);
    }
    bool may_put_eagerly(int peer, SignalName credit, std::uint64_t value,
                         bool waits) noexcept override {
        if (stopped_ || !puts(peer)) return true;
        if (!waits && context_.inbox.flow.has_budget(peer)) return true;
        if (context_.inbox.signalled(peer, credit) >= value) return true;
        const std::lock_guard lock(fabric_->mutex());
        if (context_.inbox.flow.request(peer, credit, value))
            fabric_->put(
                context_, peers_[static_cast<std::size_t>(peer)],
                {.peer = peer, .signal = credit, .value = value, .kind = PutKind::request_to_send},
                nullptr);
        return false;
    }
    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        return context_.inbox.signalled(peer, signal);
    }

    // ---- progress, and the end ----

    bool progress() noexcept override { return !stopped_ && fabric_->progress(); }
    int descriptor() const noexcept override { return stopped_ ? -1 : fabric_->descriptor(); }
    bool arm() noexcept override { return stopped_ || fabric_->arm(); }

    void stop() noexcept override {
        if (stopped_) return;
        stopped_ = true;
        if (fabric_->inherited()) return;
        fabric_->close(context_, failure_.broken() ? 0.0 : grace_seconds);
    }

private:
    // Time that a transport waits, when it stops or forgets a memory, for puts under way to end.
    static constexpr double grace_seconds = 1.0;

    static const std::vector<int> &require_reached(const Fabric &fabric,
                                                   const std::vector<int> &peers) {
        for (const int process : peers)
            if (process >= 0 && !fabric.reaches(process))
                throw Error(VESCOMM_ERROR_INTERNAL, "process " + std::to_string(process) +
                                                        " is not connected to the fabric of " +
                                                        Fabric::network);
        return peers;
    }

    void check_running() const {
        failure_.check();
        if (stopped_)
            throw Error(VESCOMM_ERROR_INTERNAL, "the transport " + std::string(Fabric::name) +
                                                    " is used after it has been stopped");
    }

    // Ends a put that is not made. `why`: nullptr if the communicator has ended.
    void refuse(const Put &put, const char *why) noexcept {
        if (put.pending != nullptr) put.pending->fetch_sub(1, std::memory_order_release);
        if (why == nullptr) return;
        fail([&] {
            return "a put of " + std::to_string(put.bytes) + " bytes to offset " +
                   std::to_string(put.offset) + " of memory " + std::to_string(put.memory) +
                   " of rank " + std::to_string(put.peer) + ", channel " +
                   std::to_string(put.signal.channel) + " flag " + std::to_string(put.signal.flag) +
                   ", is impossible: " + why;
        });
    }

    // Fails the communicator; without a sentence if there is no memory for it.
    template <typename Sentence>
    void fail(Sentence sentence) noexcept {
        if (failure_.broken()) return;
        try {
            failure_.set(VESCOMM_ERROR_INTERNAL, sentence());
        } catch (...) {
            failure_.set(VESCOMM_ERROR_INTERNAL, {});
        }
    }

    const std::shared_ptr<Fabric> fabric_;
    const std::vector<int> peers_;
    Failure &failure_;
    Context context_;
    bool stopped_ = false;
};

}  // namespace vescomm::internal
