// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/match/forwarded_match.h"

namespace vescomm::internal {

ForwardedMatch::ForwardedMatch(const Bindings &bindings, const RunContext &context,
                               const std::vector<std::uint8_t> &receive_mask)
    : bindings_(bindings), context_(context), mask_(receive_mask), words_(receive_mask.size()) {}

void ForwardedMatch::publish_mask(std::uint32_t signature) noexcept {
    if (mask_.empty()) return;
    auto *published = reinterpret_cast<std::uint32_t *>(
        context_.in_slot(context_.local(), bindings_.match.tables.receive_masks));
    for (std::size_t peer = 0; peer < mask_.size(); ++peer)
        published[peer] = mask_[peer] == 0 ? 0
                                           : signature_for(static_cast<int>(peer), signature,
                                                           bindings_.match.pair_digests);
}

bool ForwardedMatch::has_mask(int local_peer) const noexcept {
    return context_.is_current(
        bindings_.intra_node->signalled(local_peer, context_.own(signature_flag)));
}

bool ForwardedMatch::any_local_receives(int peer) const noexcept {
    for (std::size_t local = 0; local < context_.locals().size(); ++local)
        if (mask_of(local)[peer] != 0) return true;
    return false;
}

void ForwardedMatch::put_signature(const BoundStep &put, std::uint32_t signature,
                                   std::atomic<std::uint32_t> &pending) noexcept {
    std::uint64_t &word = words_[static_cast<std::size_t>(put.final_peer)];
    word = context_.word(signature_for(put.final_peer, signature, bindings_.match.pair_digests));
    pending.fetch_add(1, std::memory_order_relaxed);
    put.transport->put({.peer = put.peer,
                        .from = reinterpret_cast<const std::byte *>(&word),
                        .memory = bindings_.staging.memory,
                        .offset = context_.slot_offset() + bindings_.match.tables.forwarded +
                                  put.forwarded * sizeof word,
                        .bytes = sizeof word,
                        .signal = context_.own(put.flag),
                        .pending = &pending,
                        .credit = put.target.credit == 0 ? 0 : context_.word(put.target.credit),
                        .credit_flag = put.target.credit_flag});
}

bool ForwardedMatch::accept(const BoundStep &wait) noexcept {
    const auto *words = reinterpret_cast<const std::uint64_t *>(
        context_.in_slot(context_.local(), bindings_.match.tables.forwarded));
    const std::vector<int> &locals = context_.locals();
    for (std::size_t local = 0; local < locals.size(); ++local) {
        const std::uint64_t word = words[wait.forwarded + local];
        const std::uint32_t sent = context_.is_current(word) ? static_cast<std::uint32_t>(word) : 0;
        const std::uint32_t expected = mask_of(local)[wait.peer];
        if (sent == expected) continue;
        mismatch_ = sent != 0 ? Mismatch{wait.peer, sent, locals[local], expected}
                              : Mismatch{locals[local], expected, wait.peer, sent};
        return false;
    }
    return true;
}

}  // namespace vescomm::internal
