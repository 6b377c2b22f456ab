// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/node.h"

#include <sys/eventfd.h>

#include "base/system.h"
#include "transport/descriptor_star.h"
#include "transport/shared_memory.h"
#include "transport/signal_board.h"

namespace vescomm {

namespace {

// Channels for the requests and memories that a communicator has at a time, and for its mailbox,
// which takes some for each rank. A channel takes 64 bytes of memory for each rank of the node when
// it is first used, and as much of the address space from the beginning.
std::uint32_t channels_for(int ranks) {
    return (1u << 16) + 8 * static_cast<std::uint32_t>(ranks);
}

// One file for the whole node: a slab for all, or one after another, each on a page of its own.
class NodeMapping final : public Mapping {
public:
    NodeMapping(MappedMemory memory, std::vector<std::byte *> bases)
        : memory_(std::move(memory)), bases_(std::move(bases)) {}

    std::byte *base(int peer) const noexcept override { return bases_[peer]; }

private:
    MappedMemory memory_;
    std::vector<std::byte *> bases_;
};

class NodeTransport final : public Transport {
public:
    NodeTransport(const Nodes &nodes, Control &control, const Failure &failure, Deadline deadline)
        : nodes_(nodes),
          rank_(control.rank()),
          star_(nodes, control, failure, deadline),
          locals_(static_cast<int>(nodes.members(nodes.node_of(rank_)).size())) {
        const std::uint32_t channels = channels_for(nodes.ranks());
        Descriptor file = share("vescomm signals", SignalBoard::bytes(locals_, channels), deadline);
        signals_ = MappedMemory(file, SignalBoard::bytes(locals_, channels));

        Descriptor mine(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!mine.open()) throw system_error("cannot create an event descriptor");
        wakers_ = locals_ > 1 ? star_.all_gather(mine.get(), deadline) : std::vector<Descriptor>{};
        if (locals_ == 1) wakers_.push_back(std::move(mine));
        std::vector<int> numbers;
        for (const Descriptor &waker : wakers_) numbers.push_back(waker.get());
        board_ = std::make_unique<SignalBoard>(signals_.data(), locals_, channels,
                                               nodes.local_rank(rank_), std::move(numbers));
    }

    std::string_view name() const override { return "node"; }
    bool maps(int peer) const noexcept override { return nodes_.together(rank_, peer); }
    bool puts(int) const noexcept override { return false; }
    bool supports(vescomm_memory_kind_t kind) const noexcept override {
        return kind == VESCOMM_HOST;
    }

    std::shared_ptr<Mapping> map(std::uint64_t bytes, vescomm_sharing_t sharing,
                                 Deadline deadline) override {
        // No machine has this much, and sums below cannot overflow.
        if (bytes > (std::uint64_t{1} << 60) / static_cast<std::uint64_t>(locals_))
            throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                        std::to_string(bytes) + " bytes are more than any node has");
        const std::size_t slab = round_up_to_page(bytes);
        const bool one = sharing == VESCOMM_PER_NODE;
        const std::size_t total = one ? slab : slab * static_cast<std::size_t>(locals_);
        Descriptor file = share("vescomm memory", total, deadline, true);
        const auto local = static_cast<std::size_t>(nodes_.local_rank(rank_));
        if (one) {
            // Each takes its part of the common slab, so that the pages spread over the machine.
            const auto edge = [&](std::size_t part) {
                return slab / page_bytes() * part / static_cast<std::size_t>(locals_) *
                       page_bytes();
            };
            take_room(file, edge(local), edge(local + 1) - edge(local), deadline);
        } else {
            take_room(file, slab * local, slab, deadline);
        }
        MappedMemory memory(file, total);
        std::vector<std::byte *> bases(nodes_.ranks(), nullptr);
        for (const int peer : nodes_.members(nodes_.node_of(rank_)))
            bases[peer] = memory.data() +
                          (one ? 0 : slab * static_cast<std::size_t>(nodes_.local_rank(peer)));
        return std::make_shared<NodeMapping>(std::move(memory), std::move(bases));
    }

    void signal(int, SignalName signal, std::uint64_t value) noexcept override {
        board_->raise(signal, value);
    }

    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        return board_->value(nodes_.local_rank(peer), signal);
    }

    SignalBoard *board() noexcept override { return board_.get(); }

private:
    // Collective: the first rank of the node makes the file. `whole`: all of it will be used.
    Descriptor share(const char *purpose, std::size_t bytes, Deadline deadline,
                     bool whole = false) {
        if (nodes_.local_rank(rank_) != 0) {
            Descriptor file = star_.broadcast(-1, deadline);
            require_sealed(file, bytes);
            return file;
        }
        try {
            if (whole) require_room(bytes);
            Descriptor file = make_anonymous_file(purpose, bytes);
            return locals_ == 1 ? std::move(file) : star_.broadcast(file.get(), deadline);
        } catch (const Error &error) {
            // The others wait for a descriptor: tell them that there is none.
            if (locals_ > 1 && error.status != VESCOMM_ERROR_PEER_FAILED)
                star_.broadcast(-1, deadline);
            throw;
        } catch (const std::bad_alloc &) {
            if (locals_ > 1) star_.broadcast(-1, deadline);
            throw;
        }
    }

    Nodes nodes_;
    int rank_;
    DescriptorStar star_;
    int locals_;
    MappedMemory signals_;
    std::vector<Descriptor> wakers_;
    std::unique_ptr<SignalBoard> board_;
};

}  // namespace

std::unique_ptr<Transport> make_node_transport(const Nodes &nodes, Control &control,
                                               const Failure &failure, Deadline deadline) {
    return std::make_unique<NodeTransport>(nodes, control, failure, deadline);
}

}  // namespace vescomm
