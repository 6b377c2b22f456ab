// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/node.h"

#include "base/error.h"
#include "bootstrap/descriptor_exchange.h"
#include "transport/shared_memory.h"
#include "transport/signal_board.h"
#include "transport/wake_socket.h"

namespace vescomm::internal {

namespace {

// Channels for the requests and memories that a communicator has at a time, and 8 per rank for its
// eager buffers. Each channel reserves 64 bytes of address space for each rank of the node, and
// takes the memory when it is first used.
std::uint32_t channels_for(int ranks) {
    return (1u << 16) + 8 * static_cast<std::uint32_t>(ranks);
}

// One file for the whole node: one common slab, or one slab per rank, each starting on a page.
class NodeMapping final : public Mapping {
public:
    NodeMapping(MappedMemory memory, std::vector<std::byte *> bases)
        : memory_(std::move(memory)), bases_(std::move(bases)) {}

    std::byte *base(int peer) const noexcept override { return bases_[peer]; }
    bool duplicable() const noexcept override { return true; }

private:
    MappedMemory memory_;
    std::vector<std::byte *> bases_;
};

class NodeTransport final : public Transport {
public:
    NodeTransport(const Nodes &nodes, Control &control, Deadline deadline)
        : nodes_(nodes),
          control_(control),
          rank_(control.rank()),
          locals_(static_cast<int>(nodes.members(nodes.node_of(rank_)).size())) {
        const std::uint32_t channels = channels_for(nodes.ranks());
        const std::size_t bytes = SignalBoard::bytes(locals_, channels);
        Shared board;
        std::string failed;
        try {
            if (leads()) board = make("vescomm signals", bytes);
        } catch (const Error &error) {
            // The other ranks wait for this one, so the error is sent to all.
            failed = error.what();
        }
        // Neither the ticket nor the wake name contains zero bytes.
        const auto said = control.all_gather(
            "node sharing", board.offer.ticket() + '\0' + wake_.name() + '\0' + failed, deadline);
        for (const int member : nodes.members(nodes.node_of(rank_))) {
            const std::string &text = said[static_cast<std::size_t>(member)];
            const std::size_t first = text.find('\0');
            const std::size_t second = text.find('\0', first + 1);
            if (second == std::string::npos)
                throw Error(VESCOMM_ERROR_INTERNAL, "a rank of this node sent too little");
            if (second + 1 < text.size())
                throw Error(VESCOMM_ERROR_SYSTEM,
                            "rank " + std::to_string(member) + ": " + text.substr(second + 1));
            names_.push_back(text.substr(first + 1, second - first - 1));
            if (member == leader()) board.ticket = text.substr(0, first);
        }
        signals_ = MappedMemory(fetch(board, bytes, deadline), bytes);
        // The leader keeps its offer until all ranks have fetched the descriptor.
        control.all_gather("node shared", {}, deadline);
        board_ = std::make_unique<SignalBoard>(
            signals_.data(), locals_, channels, nodes.local_rank(rank_), wake_.descriptor(),
            [this](int local_rank) {
                WakeSocket::wake(names_[static_cast<std::size_t>(local_rank)]);
            });
    }

    std::string_view name() const override { return "node"; }
    bool maps(int peer) const noexcept override { return nodes_.together(rank_, peer); }
    bool puts(int) const noexcept override { return false; }
    bool supports(vescomm_memory_kind_t kind) const noexcept override {
        return kind == VESCOMM_HOST;
    }

    std::string share(std::uint64_t bytes, vescomm_sharing_t sharing,
                      std::uint64_t reserved) override {
        reserved_ = reserved;
        // No machine has this much memory. The limit keeps the sums below from overflowing.
        if (bytes > (std::uint64_t{1} << 60) / static_cast<std::uint64_t>(locals_))
            throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                        std::to_string(bytes) + " bytes are more than any node has");
        if (!leads()) return {};
        const std::size_t total = total_bytes(bytes, sharing);
        if (reserved > 0) require_free_memory(total_bytes(reserved, sharing));
        shared_ = make("vescomm memory", total);
        return shared_.offer.ticket();
    }

    std::shared_ptr<Mapping> map(std::uint64_t bytes, vescomm_sharing_t sharing,
                                 const std::vector<std::string> &shared,
                                 Deadline deadline) override {
        const std::size_t slab = round_up_to_page(bytes);
        const bool one = sharing == VESCOMM_PER_NODE;
        const std::size_t total = total_bytes(bytes, sharing);
        shared_.ticket = shared[static_cast<std::size_t>(leader())];
        const Descriptor file = fetch(shared_, total, deadline);
        const auto local = static_cast<std::size_t>(nodes_.local_rank(rank_));
        const std::size_t reserved = round_up_to_page(reserved_);
        if (reserved == 0) {
            // Pages are allocated when they are touched.
        } else if (one) {
            // Each rank allocates its part of the common slab, so that the pages spread over the
            // machine.
            const auto edge = [&](std::size_t part) {
                return reserved / page_bytes() * part / static_cast<std::size_t>(locals_) *
                       page_bytes();
            };
            reserve_memory(file, edge(local), edge(local + 1) - edge(local), deadline);
        } else {
            reserve_memory(file, slab * local, reserved, deadline);
        }
        MappedMemory memory(file, total);
        std::vector<std::byte *> bases(nodes_.ranks(), nullptr);
        for (const int peer : nodes_.members(nodes_.node_of(rank_)))
            bases[peer] = memory.data() +
                          (one ? 0 : slab * static_cast<std::size_t>(nodes_.local_rank(peer)));
        return std::make_shared<NodeMapping>(std::move(memory), std::move(bases));
    }

    void end_sharing() noexcept override { shared_ = {}; }

    void signal(int, SignalName signal, std::uint64_t value) noexcept override {
        board_->raise(signal, value);
    }

    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        return board_->value(nodes_.local_rank(peer), signal);
    }

    SignalBoard *board() noexcept override { return board_.get(); }

private:
    // A file that the first rank of the node makes and the others fetch.
    struct Shared {
        Descriptor file;
        DescriptorExchange::Offer offer;
        std::string ticket;
    };

    int leader() const { return nodes_.members(nodes_.node_of(rank_))[0]; }
    bool leads() const { return leader() == rank_; }

    std::size_t total_bytes(std::uint64_t bytes, vescomm_sharing_t sharing) const {
        const std::size_t slab = round_up_to_page(bytes);
        return sharing == VESCOMM_PER_NODE ? slab : slab * static_cast<std::size_t>(locals_);
    }

    Shared make(const char *purpose, std::size_t bytes) {
        Shared made;
        made.file = make_anonymous_file(purpose, bytes);
        if (locals_ > 1) made.offer = control_.descriptors().offer(made.file.get());
        return made;
    }

    Descriptor fetch(Shared &shared, std::size_t bytes, Deadline deadline) {
        if (leads()) return std::move(shared.file);
        Descriptor file =
            control_.descriptors().fetch(shared.ticket).wait(deadline, rank_, leader());
        require_sealed(file, bytes);
        return file;
    }

    Nodes nodes_;
    Control &control_;
    int rank_;
    int locals_;
    WakeSocket wake_;
    std::vector<std::string> names_;  // names of the wake sockets, by local rank
    MappedMemory signals_;
    std::unique_ptr<SignalBoard> board_;
    Shared shared_;  // valid between share() and end_sharing()
    std::uint64_t reserved_ = 0;  // bytes of each slab that map() allocates
};

}  // namespace

std::unique_ptr<Transport> make_node_transport(const Nodes &nodes, Control &control,
                                               Deadline deadline) {
    return std::make_unique<NodeTransport>(nodes, control, deadline);
}

}  // namespace vescomm::internal
