// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/memory.h"

#include <algorithm>

#include "base/error.h"
#include "comm/agree.h"
#include "comm/memory_aliases.h"

namespace vescomm::internal {

namespace {

std::span<const int> locals_of(const Communicator &comm) {
    return comm.nodes().members(comm.nodes().node_of(comm.rank()));
}

// Returns nullptr if slabs cannot have aliases.
std::shared_ptr<AliasedMapping> alias(const Communicator &comm, std::uint64_t bytes) {
    const CommPool &pool = comm.pool();
    if (!pool.registered) return nullptr;
    return AliasedMapping::take(pool.memory->aliases(), locals_of(comm), pool.numbers, comm.rank(),
                                bytes);
}

}  // namespace

Memory::Memory(std::shared_ptr<Communicator> comm, std::uint64_t bytes, vescomm_sharing_t sharing,
               Channel channel)
    : comm_(std::move(comm)),
      bytes_(bytes),
      sharing_(sharing),
      id_(comm_->numbers().next_memory()),
      channel_(channel),
      count_base_((std::uint64_t{channel.runs} + 1) << 32) {}

std::shared_ptr<Memory> Memory::create(std::shared_ptr<Communicator> comm, std::uint64_t bytes,
                                       vescomm_memory_kind_t kind, vescomm_sharing_t sharing,
                                       const Extras &extras) {
    comm->check();
    Communicator &c = *comm;
    const Deadline deadline = c.deadline();
    const Channel channel =
        require_same_and_take_channel(c, "memory creation", deadline,
                                      {{"bytes", std::to_string(bytes)},
                                       {"kind", std::to_string(kind)},
                                       {"sharing", std::to_string(sharing)},
                                       {"partial_bytes", std::to_string(extras.partial)}});
    std::shared_ptr<Memory> memory(new Memory(std::move(comm), bytes, sharing, channel));
    struct EndSharing {
        Transport &intra_node;
        ~EndSharing() { intra_node.end_sharing(); }
    } const end_sharing{c.intra_node()};
    const std::uint64_t mapped = bytes + extras.spare;
    std::shared_ptr<AliasedMapping> aliased;  // nullptr: no aliases
    const auto shared = agree(c, "memory sharing", deadline, [&] {
        if (!c.intra_node().supports(kind))
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        "no transport of this build can map memory of "
                        "kind " +
                            std::to_string(kind));
        const std::string ticket =
            c.intra_node().share(mapped, sharing, extras.reserve ? bytes : 0);
        if (extras.aliases && sharing == VESCOMM_PER_RANK && bytes > 0) aliased = alias(c, bytes);
        return (aliased ? aliased->range() : AliasRange()).text() + ticket;
    });
    const auto offers = agree(c, "memory creation", deadline, [&] {
        // map() waits for a descriptor of another rank, so it runs without the lock.
        std::vector<std::string> tickets;
        std::vector<AliasRange> ranges;
        for (std::string_view text : shared) {
            ranges.push_back(AliasRange::take_from(text));
            tickets.emplace_back(text);
        }
        memory->mapping_ = c.intra_node().map(mapped, sharing, tickets, deadline);
        if (aliased && aliased->accept(ranges, memory->mapping_)) memory->mapping_ = aliased;
        else aliased.reset();
        std::string offer;
        c.with_transports([&](Transports &transports) {
            // Only the loopback transport both maps and puts; other intra-node transports offer
            // nothing.
            offer = transports.intra_node->offer(memory->id_, memory->data(), bytes);
            for (auto &transport : transports.inter_node)
                offer = transport->offer(memory->id_, memory->data(), bytes);
        });
        return offer;
    });
    const auto exchanged = agree(c, "memory exchange", deadline, [&] {
        c.with_transports([&](Transports &transports) {
            for (auto &transport : transports.inter_node)
                for (int peer = 0; peer < c.ranks(); ++peer)
                    if (transport->puts(peer)) transport->accept(memory->id_, peer, offers[peer]);
        });
        return std::string(aliased && aliased->map_peers() ? "aliased" : "");
    });
    if (aliased)
        aliased->settle(std::ranges::all_of(locals_of(c), [&](int local) {
            return !exchanged[static_cast<std::size_t>(local)].empty();
        }));
    if (extras.partial > 0) memory->shared_partial(extras.partial);
    return memory;
}

Memory::~Memory() {
    comm_->with_transports([&](Transports &transports) {
        transports.intra_node->forget(id_);
        for (auto &transport : transports.inter_node) transport->forget(id_);
    });
    comm_->numbers().channels().give_back(
        {channel_.number, static_cast<std::uint32_t>(gathers_ >> 32)});
}

void Memory::release() {
    if (released_ == gathers_) return;
    released_ = gathers_;
    comm_->with_transports([&](Transports &transports) {
        transports.intra_node->signal(comm_->rank(), {channel_.number, 0}, released_);
    });
}

std::uint64_t Memory::begin_gather() {
    release();
    const std::uint64_t before = gathers_++;
    return before == count_base_ ? 0 : before;
}

std::shared_ptr<PartialSums> Memory::shared_partial(std::uint64_t bytes) {
    // A memory that is too small stays with the requests that use it.
    if (!partial_ || partial_->memory->bytes() < bytes) {
        // No allocation follows the collective call, after which all ranks have the memory.
        auto larger = std::make_shared<PartialSums>();
        earlier_partial_.reserve(earlier_partial_.size() + 1);
        larger->memory = create(comm_, bytes, VESCOMM_HOST, VESCOMM_PER_RANK);
        if (partial_) earlier_partial_.push_back(partial_);
        partial_ = std::move(larger);
    }
    return partial_;
}

std::uint64_t Memory::partial_bytes() const {
    std::uint64_t bytes = partial_ ? partial_->memory->bytes() : 0;
    for (const auto &earlier : earlier_partial_)
        if (const auto kept = earlier.lock()) bytes += kept->memory->bytes();
    return bytes;
}

void Memory::acquire(const std::string &what) {
    comm_->check();
    release();
    if (sharing_ != VESCOMM_PER_NODE || gathers_ == count_base_) return;
    const Nodes &nodes = comm_->nodes();
    const auto holders = [&] {
        std::vector<int> ranks;
        for (const int peer : nodes.members(nodes.node_of(comm_->rank())))
            if (comm_->intra_node().signalled(peer, {channel_.number, 0}) < gathers_)
                ranks.push_back(peer);
        return ranks;
    };
    comm_->wait([&] { return holders().empty(); }, holders, [&] { return what; });
}

}  // namespace vescomm::internal
