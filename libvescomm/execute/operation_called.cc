// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of an operation have called: how they tell one another, and whether it is the
// same.
#include <algorithm>

#include "execute/operation.h"
#include "transport/signal_board.h"

namespace vescomm {

void Operation::advertise_to_node() noexcept {
    if (bindings_.signature == 0 || advertised_) return;
    advertised_ = true;
    for (std::size_t peer = 0; bindings_.pair_digests && peer < locals_.size(); ++peer)
        pair_digest(bindings_.rank, locals_[peer])
            .store((*bindings_.pair_digests)[locals_[peer]], std::memory_order_relaxed);
    if (!receive_mask_.empty()) {
        auto *receive_mask =
            reinterpret_cast<std::uint32_t *>(in_slot(bindings_.rank, bindings_.masks_offset));
        for (std::size_t peer = 0; peer < receive_mask_.size(); ++peer)
            receive_mask[peer] =
                receive_mask_[peer] != 0 ? signature_for(static_cast<int>(peer)) : 0;
    }
    bindings_.intra_node->signal(bindings_.rank, signal(signature_flag), at_this_run(signature_));
}

std::atomic_ref<std::uint32_t> Operation::pair_digest(int of, int with) const noexcept {
    const RegionBinding &staging = bindings_.staging;
    auto *first =
        staging.mapping->base(of) + run_.slot * staging.slot_bytes + bindings_.pairs_offset;
    return std::atomic_ref(
        reinterpret_cast<std::uint32_t *>(first)[bindings_.nodes.local_rank(with)]);
}

bool Operation::has_advertised_mask(int member) const noexcept {
    return bindings_.intra_node->signalled(member, signal(signature_flag)) >> 32 == run_.number;
}

// Who has called something else says nothing of the kind, and all is in vain.
bool Operation::has_all_masks() noexcept {
    for (std::size_t local = 0; !masks_known_ && local < locals_.size(); ++local) {
        if (!has_advertised_mask(locals_[local])) return false;
        stopped_ |= locals_[local] != bindings_.rank &&
                    signature_of(locals_[local]) != signature_for(locals_[local]);
        if (stopped_) return false;
    }
    return masks_known_ = true;
}

bool Operation::any_local_receives(int peer) const noexcept {
    return std::ranges::any_of(locals_,
                               [&](int member) { return receive_mask_of(member)[peer] != 0; });
}

bool Operation::ends_agree(const BoundStep &step) noexcept {
    const auto *called = reinterpret_cast<const std::uint64_t *>(
        in_slot(bindings_.rank, bindings_.forwarded_offset));
    for (std::size_t local = 0; local < locals_.size(); ++local) {
        const std::uint64_t last = called[step.relay + local];
        const std::uint32_t sent = last >> 32 == run_.number ? static_cast<std::uint32_t>(last) : 0;
        const std::uint32_t wanted = receive_mask_of(locals_[local])[step.peer];
        if (sent == wanted) continue;
        at_forwarder_ = sent != 0 ? Disagreement{step.peer, sent, locals_[local], wanted}
                                  : Disagreement{locals_[local], wanted, step.peer, sent};
        return false;
    }
    return true;
}

// Beside what goes to a third rank: what was called, for whom it is.
void Operation::put_called(const BoundStep &step) noexcept {
    auto &called = called_through_[static_cast<std::size_t>(step.final_peer)];
    called = at_this_run(signature_for(step.final_peer));
    puts_pending_.fetch_add(1, std::memory_order_relaxed);
    const RegionBinding &staging = bindings_.staging;
    step.transport->put({.peer = step.peer,
                         .from = reinterpret_cast<const std::byte *>(&called),
                         .memory = staging.memory,
                         .offset = run_.slot * staging.slot_bytes + bindings_.forwarded_offset +
                                   step.relay * sizeof called,
                         .bytes = sizeof called,
                         .signal = signal(step.flag),
                         .pending = &puts_pending_,
                         .eager = step.credit == 0 ? 0 : at_this_run(step.credit),
                         .credit_flag = step.credit_flag});
}

std::uint32_t Operation::signature_for(int peer) const noexcept {
    return vescomm::signature_for(peer, signature_, bindings_.pair_digests);
}

std::uint32_t Operation::signature_of(int peer) const noexcept {
    const Transport &transport = *bindings_.transports[peer];
    std::uint64_t called = transport.signalled(peer, heard(signature_flag));
    const bool near = bindings_.nodes.together(bindings_.rank, peer);
    if (called >> 32 != run_.number && !near)
        called = transport.signalled(peer, heard(advertised_flag));
    if (called >> 32 != run_.number && near && bindings_.turns != nullptr)
        called = inline_flag_of(static_cast<std::size_t>(bindings_.nodes.local_rank(peer)))
                     .called.load(std::memory_order_acquire);
    if (called >> 32 != run_.number) return 0;
    const auto theirs = static_cast<std::uint32_t>(called);
    // To its own node a rank says the same for all, and what is between two beside it.
    const bool beside = bindings_.pair_digests && near;
    return beside ? theirs ^ pair_digest(peer, bindings_.rank).load(std::memory_order_relaxed)
                  : theirs;
}

// Whoever waits for an eager flag of every other rank has compared what they called.
bool Operation::waits_for_all_flags(const Schedule &schedule) const {
    std::size_t flags = 0;
    for (const Lane &lane : schedule.lanes)
        for (const Step &step : lane.steps())
            if (step.action == Action::wait && step.flag == inline_flag) ++flags;
    return inlines_ && flags + 1 == locals_.size();
}

std::optional<Operation::Disagreement> Operation::disagreement() const noexcept {
    if (bindings_.signature == 0) return {};
    if (at_forwarder_) return at_forwarder_;
    // Of two that wait for nobody, the later one sees what the other one has called.
    if (inlines_) std::atomic_thread_fence(std::memory_order_seq_cst);
    if (const Queue *queue = bindings_.queues) {
        const std::uint32_t sent = queue->receives ? signature_of(queue->peer) : 0;
        if (sent == 0 || sent == bindings_.signature) return {};
        return Disagreement{bindings_.rank, bindings_.signature, queue->peer, sent};
    }
    for (int peer = 0; peer < bindings_.nodes.ranks(); ++peer) {
        const std::uint32_t mine = signature_for(peer), theirs = signature_of(peer);
        if (theirs != 0 && theirs != mine) return Disagreement{bindings_.rank, mine, peer, theirs};
    }
    return {};
}

void Operation::advertise_signature() noexcept {
    if (bindings_.signature == 0 || bindings_.queues != nullptr || !acquired_) return;
    advertise_to_node();
    for (BoundLane &lane : lanes_) {
        if (lane.at == lane.steps.size() || lane.told == lane.at) continue;
        lane.told = lane.at;
        const BoundStep &step = lane.steps[lane.at];
        if (step.action != Action::wait) continue;
        tell(step.peer);
        if (step.final_peer != no_rank) tell(step.final_peer);
        // And those for whom there must be room.
        for (std::size_t i = lane.at + 1; i < lane.steps.size(); ++i) {
            const BoundStep &next = lane.steps[i];
            if (next.action != Action::put || next.peer != step.peer) break;
            if (next.final_peer != no_rank) tell(next.final_peer);
        }
    }
}

void Operation::tell(int peer) noexcept {
    if (!bindings_.nodes.together(bindings_.rank, peer))
        bindings_.transports[peer]->signal(peer, signal(advertised_flag),
                                           at_this_run(signature_for(peer)));
}

}  // namespace vescomm
