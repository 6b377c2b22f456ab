// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/memory.h"

#include "base/error.h"
#include "comm/agree.h"

namespace vescomm::internal {

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
                                       bool reserve, std::uint64_t spare) {
    comm->check();
    Communicator &c = *comm;
    const Deadline deadline = c.deadline();
    const Channel channel = require_same_and_take_channel(c, "memory creation", deadline,
                                                          {{"bytes", std::to_string(bytes)},
                                                           {"kind", std::to_string(kind)},
                                                           {"sharing", std::to_string(sharing)}});
    std::shared_ptr<Memory> memory(new Memory(std::move(comm), bytes, sharing, channel));
    struct EndSharing {
        Transport &intra_node;
        ~EndSharing() { intra_node.end_sharing(); }
    } const end_sharing{c.intra_node()};
    const auto shared = agree(c, "memory sharing", deadline, [&] {
        if (!c.intra_node().supports(kind))
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        "no transport of this build can map memory of "
                        "kind " +
                            std::to_string(kind));
        return c.intra_node().share(bytes + spare, sharing, reserve ? bytes : 0);
    });
    const auto offers = agree(c, "memory creation", deadline, [&] {
        // map() waits for a descriptor of another rank, so it runs without the lock.
        memory->mapping_ = c.intra_node().map(bytes + spare, sharing, shared, deadline);
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
    agree(c, "memory exchange", deadline, [&] {
        c.with_transports([&](Transports &transports) {
            for (auto &transport : transports.inter_node)
                for (int peer = 0; peer < c.ranks(); ++peer)
                    if (transport->puts(peer)) transport->accept(memory->id_, peer, offers[peer]);
        });
        return std::string();
    });
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
    if (!partial_ || partial_->memory->bytes() < bytes)
        partial_ = std::make_shared<PartialSums>(
            PartialSums{.memory = create(comm_, bytes, VESCOMM_HOST, VESCOMM_PER_RANK)});
    return partial_;
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
