// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/match/call_match.h"

#include <algorithm>

namespace vescomm::internal {

namespace {

// The number of local peers of which a rank that completes has seen the inline flag or the pair
// flag, and so the signature.
std::size_t inline_flags_awaited(const Schedule &schedule) {
    std::size_t flags = 0;
    for (const Lane &lane : schedule.lanes)
        for (const Step &step : lane.steps())
            if (step.action == Action::wait && lies_beside_data(step.flag)) ++flags;
    return flags;
}

}  // namespace

CallMatch::CallMatch(const Bindings &bindings, const RunContext &context, const Schedule &schedule,
                     const Program &program)
    : bindings_(bindings),
      context_(context),
      board_(bindings.intra_node->board()),
      forwarded_(bindings, context, schedule.receive_mask),
      inline_(program.uses_inline_flag || program.uses_pair_flags) {
    const MessageQueue *queue = bindings.message.queues;
    const bool sends = queue != nullptr;
    // If the root compares its call with all, a rank that has seen the flag of the root need not: a
    // rank that made another call sees that flag too, or the root sees the call of that rank.
    const std::size_t others = context.locals().size() - 1;
    proven_by_completion_ =
        bindings.match.signature == 0 || sends ||
        (inline_ && bindings.nodes.count() == 1 &&
         inline_flags_awaited(schedule) ==
             (bindings.match.root_compares ? std::min<std::size_t>(others, 1) : others));
    // Receive masks are published with the signature.
    advertises_on_acquire_ = (!inline_ || bindings.nodes.count() > 1) && !bindings.is_message();
    advertises_with_flag_ = sends && bindings.nodes.together(bindings.rank, queue->peer);
}

void CallMatch::advertise_to_node() noexcept {
    if (bindings_.match.signature == 0 || advertised_) return;
    advertised_ = true;
    if (bindings_.match.pair_digests)
        for (std::size_t local = 0; local < context_.locals().size(); ++local)
            pair_digest(context_.local(), local)
                .store((*bindings_.match
                             .pair_digests)[static_cast<std::size_t>(context_.locals()[local])],
                       std::memory_order_relaxed);
    forwarded_.publish_mask(signature_);
    if (tag_ != 0)
        bindings_.intra_node->signal(bindings_.rank, context_.own(tag_flag), context_.word(tag_));
    bindings_.intra_node->signal(bindings_.rank, context_.own(signature_flag),
                                 context_.word(signature_));
}

void CallMatch::advertise_to(int peer) noexcept {
    if (bindings_.nodes.together(bindings_.rank, peer)) return;
    bindings_.transports[static_cast<std::size_t>(peer)]->signal(
        peer, context_.own(advertised_flag), context_.word(shown_to(peer)));
}

// The digest of the exchange with a local peer that another one has published.
std::atomic_ref<std::uint32_t> CallMatch::pair_digest(std::size_t of,
                                                      std::size_t with) const noexcept {
    auto *digests = reinterpret_cast<std::uint32_t *>(
        context_.in_slot(of, bindings_.match.tables.pair_digests));
    return std::atomic_ref(digests[with]);
}

std::uint32_t CallMatch::shown_by(int peer) const noexcept {
    if (bindings_.nodes.together(bindings_.rank, peer))
        return shown_by_local(static_cast<std::size_t>(bindings_.nodes.local_rank(peer)));
    const Transport &transport = *bindings_.transports[static_cast<std::size_t>(peer)];
    std::uint64_t word = transport.signalled(peer, context_.of_peer(signature_flag));
    if (!context_.is_current(word))
        word = transport.signalled(peer, context_.of_peer(advertised_flag));
    return context_.is_current(word) ? static_cast<std::uint32_t>(word) : 0;
}

std::uint32_t CallMatch::shown_by_local(std::size_t local) const noexcept {
    std::uint64_t word = board_->value(static_cast<int>(local), context_.of_peer(signature_flag));
    if (context_.is_current(word)) {
        const auto signature = static_cast<std::uint32_t>(word);
        // Local peers share one signature; pairwise digests are published before it.
        if (!bindings_.match.pair_digests) return signature;
        return signature ^ pair_digest(local, context_.local()).load(std::memory_order_relaxed);
    }
    if (bindings_.sequences == nullptr) return 0;
    word = context_.inline_flag_of(local).call.load(std::memory_order_acquire);
    if (context_.is_current(word)) return static_cast<std::uint32_t>(word);
    // A pair flag carries the signature for this rank.
    word = context_.pair_flag_of(local, context_.local()).call.load(std::memory_order_acquire);
    return context_.is_current(word) ? static_cast<std::uint32_t>(word) : 0;
}

bool CallMatch::agrees_with_node() const noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (std::size_t local = 0; local < context_.locals().size(); ++local) {
        if (local == context_.local()) continue;
        const std::uint32_t theirs = shown_by_local(local);
        if (theirs != 0 && theirs != shown_to(context_.locals()[local])) return false;
    }
    return true;
}

bool CallMatch::accept(const BoundStep &wait) noexcept {
    if (wait.compares) {
        const std::uint32_t theirs = shown_by(wait.peer);
        stopped_ |= theirs != 0 && theirs != shown_to(wait.peer);
    }
    if (wait.conditional && !stopped_) stopped_ = !forwarded_.accept(wait);
    return !stopped_;
}

bool CallMatch::has_masks() noexcept {
    if (masks_known_) return true;
    for (const int peer : context_.locals()) {
        if (!forwarded_.has_mask(peer)) return false;
        // A rank that made another call publishes no mask, or one of another call.
        stopped_ |= peer != bindings_.rank && shown_by(peer) != shown_to(peer);
        if (stopped_) return false;
    }
    return masks_known_ = true;
}

std::optional<Mismatch> CallMatch::find_mismatch() const noexcept {
    if (bindings_.match.signature == 0 || bindings_.is_message()) return {};
    if (forwarded_.mismatch()) return forwarded_.mismatch();
    // If two ranks wait for no other rank, the one that gets here later sees the signature of the
    // other, whatever its algorithm is.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (int peer = 0; peer < bindings_.nodes.ranks(); ++peer) {
        const std::uint32_t mine = shown_to(peer), theirs = shown_by(peer);
        if (theirs != 0 && theirs != mine)
            return Mismatch{.rank = bindings_.rank,
                            .signature = mine,
                            .other = peer,
                            .other_signature = theirs,
                            .history = context_.run().history != 0};
    }
    return {};
}

}  // namespace vescomm::internal
