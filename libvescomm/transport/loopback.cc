// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/loopback.h"

#include <sys/eventfd.h>
#include <sys/mman.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "base/system.h"
#include "transport/shared_memory.h"
#include "transport/signal_board.h"

namespace vescomm::internal {

namespace {

constexpr std::uint32_t channels = 1u << 12;  // tests use few

}  // namespace

class LoopbackNetwork {
public:
    explicit LoopbackNetwork(const Nodes &nodes) : nodes(nodes), inboxes(nodes.ranks()) {
        for (int node = 0; node < nodes.count(); ++node) {
            const auto local_ranks = static_cast<int>(nodes.members(node).size());
            const std::size_t bytes = SignalBoard::bytes(local_ranks, channels);
            boards.emplace_back(make_anonymous_file("vescomm loopback", bytes), bytes);
        }
        for (int rank = 0; rank < nodes.ranks(); ++rank) {
            wakers.emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
            if (!wakers.back().open()) throw system_error("cannot create an event descriptor");
        }
    }

    // The n-th memory of every rank is one memory, made by the first rank that asks for it.
    struct Memory {
        std::vector<std::shared_ptr<std::byte[]>> slabs;  // by rank
        std::uint64_t bytes = 0;
    };
    std::shared_ptr<Memory> memory(std::size_t index, std::uint64_t bytes,
                                   vescomm_sharing_t sharing) {
        std::lock_guard lock(mutex);
        if (index == memories.size()) {
            auto made = std::make_shared<Memory>();
            made->bytes = bytes;
            for (int rank = 0; rank < nodes.ranks(); ++rank) {
                const int first = nodes.members(nodes.node_of(rank))[0];
                made->slabs.push_back(sharing == VESCOMM_PER_NODE && rank != first
                                          ? made->slabs[first]
                                          : make_slab(bytes));
            }
            memories.push_back(std::move(made));
        }
        return memories[index];
    }

    static std::shared_ptr<std::byte[]> make_slab(std::uint64_t bytes) {
        // On pages that are allocated when they are touched, as in shared memory.
        const std::size_t size = round_up_to_page(std::max<std::uint64_t>(bytes, 1));
        void *data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED) throw std::bad_alloc();
        return {static_cast<std::byte *>(data), [size](std::byte *p) { munmap(p, size); }};
    }

    struct Message {
        int from;
        Put put;
    };
    struct Inbox {
        std::mutex mutex;
        std::deque<Message> messages;
        std::map<std::tuple<int, std::uint32_t, std::uint32_t>, std::uint64_t> signals;
    };

    const Nodes nodes;
    std::mutex mutex;
    std::vector<MappedMemory> boards;
    std::vector<Descriptor> wakers;
    std::vector<std::shared_ptr<Memory>> memories;
    std::vector<Inbox> inboxes;
};

namespace {

class LoopbackMapping final : public Mapping {
public:
    LoopbackMapping(std::shared_ptr<LoopbackNetwork::Memory> memory, const Nodes &nodes, int rank)
        : memory_(std::move(memory)), bases_(nodes.ranks(), nullptr) {
        for (const int peer : nodes.members(nodes.node_of(rank)))
            bases_[peer] = memory_->slabs[peer].get();
    }
    std::byte *base(int peer) const noexcept override { return bases_[peer]; }

private:
    std::shared_ptr<LoopbackNetwork::Memory> memory_;
    std::vector<std::byte *> bases_;
};

class LoopbackTransport final : public Transport {
public:
    LoopbackTransport(std::shared_ptr<LoopbackNetwork> network, int rank)
        : network_(std::move(network)), rank_(rank) {
        const int node = network_->nodes.node_of(rank);
        const auto local_ranks = static_cast<int>(network_->nodes.members(node).size());
        board_ = std::make_unique<SignalBoard>(
            network_->boards[node].data(), local_ranks, channels, network_->nodes.local_rank(rank),
            network_->wakers[rank].get(),
            [this, node](int local_rank) { ring_waker(node, local_rank); });
    }

    std::string_view name() const override { return "loopback"; }
    bool maps(int peer) const noexcept override { return network_->nodes.together(rank_, peer); }
    bool puts(int peer) const noexcept override { return !maps(peer); }
    bool supports(vescomm_memory_kind_t kind) const noexcept override {
        return kind == VESCOMM_HOST;
    }

    std::shared_ptr<Mapping> map(std::uint64_t bytes, vescomm_sharing_t sharing,
                                 const std::vector<std::string> &, Deadline) override {
        return std::make_shared<LoopbackMapping>(network_->memory(mapped_++, bytes, sharing),
                                                 network_->nodes, rank_);
    }

    std::string offer(MemoryId memory, std::byte *base, std::uint64_t) override {
        targets_[memory] = base;
        return "offered";
    }
    void forget(MemoryId memory) noexcept override { targets_.erase(memory); }

    void put(const Put &put) noexcept override {
        auto &inbox = network_->inboxes[put.peer];
        {
            std::lock_guard lock(inbox.mutex);
            inbox.messages.push_back({rank_, put});
        }
        wake(put.peer);
    }

    void signal(int peer, SignalName signal, std::uint64_t value) noexcept override {
        if (maps(peer)) {
            board_->raise(signal, value);
        } else {
            Put put;
            put.peer = peer;
            put.signal = signal;
            put.value = value;
            this->put(put);
        }
    }

    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        if (maps(peer)) return board_->value(network_->nodes.local_rank(peer), signal);
        auto &inbox = network_->inboxes[rank_];
        std::lock_guard lock(inbox.mutex);
        const auto found = inbox.signals.find({peer, signal.channel, signal.flag});
        return found == inbox.signals.end() ? 0 : found->second;
    }

    // Delivers one message per call, so that the others stay in flight for a while.
    bool progress() noexcept override {
        auto &inbox = network_->inboxes[rank_];
        std::unique_lock lock(inbox.mutex);
        if (inbox.messages.empty()) return false;
        const LoopbackNetwork::Message message = inbox.messages.front();
        inbox.messages.pop_front();
        const Put &put = message.put;
        if (put.bytes > 0) std::memcpy(targets_.at(put.memory) + put.offset, put.from, put.bytes);
        auto &counter = inbox.signals[{message.from, put.signal.channel, put.signal.flag}];
        counter = std::max(counter, put.value);
        if (put.signature != 0 && put.tag != 0)
            inbox.signals[{message.from, put.signal.channel, tag_flag}] =
                signature_value(put.value, put.tag);
        if (put.signature != 0) {
            auto &shown =
                inbox.signals[{message.from, put.signal.channel, signature_flag_for(put.bytes)}];
            shown = std::max(shown, signature_value(put.value, put.signature));
        }
        if (put.pending != nullptr) put.pending->fetch_sub(1, std::memory_order_release);
        lock.unlock();
        if (put.pending != nullptr) wake(message.from);
        wake(rank_);
        return true;
    }

    // Withdraws undelivered messages, whose bytes are still in the memory of this rank.
    void stop() noexcept override {
        for (auto &inbox : network_->inboxes) {
            std::lock_guard lock(inbox.mutex);
            std::erase_if(inbox.messages,
                          [this](const auto &message) { return message.from == rank_; });
        }
    }

    SignalBoard *board() noexcept override { return board_.get(); }

private:
    // The board of this rank rings only its own node; a temporary board rings another node.
    void wake(int peer) noexcept {
        if (maps(peer)) {
            board_->ring(network_->nodes.local_rank(peer));
            return;
        }
        const int node = network_->nodes.node_of(peer);
        const auto local_ranks = static_cast<int>(network_->nodes.members(node).size());
        SignalBoard(network_->boards[node].data(), local_ranks, channels, 0, -1,
                    [this, node](int local_rank) { ring_waker(node, local_rank); })
            .ring(network_->nodes.local_rank(peer));
    }

    void ring_waker(int node, int local_rank) const noexcept {
        const int member = network_->nodes.members(node)[static_cast<std::size_t>(local_rank)];
        const std::uint64_t one = 1;
        // write() fails only if the counter is at its limit, and then the descriptor is readable.
        [[maybe_unused]] const auto written =
            write(network_->wakers[member].get(), &one, sizeof one);
    }

    std::shared_ptr<LoopbackNetwork> network_;
    int rank_;
    std::size_t mapped_ = 0;
    std::unique_ptr<SignalBoard> board_;
    std::map<MemoryId, std::byte *> targets_;
};

}  // namespace

std::shared_ptr<LoopbackNetwork> make_loopback_network(const Nodes &nodes) {
    return std::make_shared<LoopbackNetwork>(nodes);
}

std::unique_ptr<Transport> make_loopback_transport(std::shared_ptr<LoopbackNetwork> network,
                                                   int rank) {
    return std::make_unique<LoopbackTransport>(std::move(network), rank);
}

}  // namespace vescomm::internal
