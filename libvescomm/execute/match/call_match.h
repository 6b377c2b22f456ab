// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "execute/match/forwarded_match.h"
#include "execute/match/mismatch.h"
#include "execute/program.h"
#include "execute/run_context.h"
#include "transport/signal_board.h"

namespace vescomm::internal {

// Compares the calls of the ranks of an operation, run by run. Needs no messages of its own unless
// a rank waits long:
//
//   node           a rank raises signature_flag once it has acquired its slot; an inline flag, and
//                  the first flag of a message, carry the signature themselves
//   other nodes    a put, and a signal, carry the signature of the sender for the receiver
//   long waits     a rank advertises its signature to the ranks that it waits for
//                  (advertised_flag): ranks that wait for one another in different calls find out
//   forwarding     forwarded_match.h
//
// docs/design/0017 explains why the signature has a word of its own.
//
// Threads: see Operation. Cost: in a run, a load and a comparison for each wait that another rank
// ends.
class CallMatch {
public:
    CallMatch(const Bindings &bindings, const RunContext &context, const Schedule &schedule,
              const Program &program);

    // Messages that this rank sends: the tag that the next runs show with the signature.
    void set_tag(std::int32_t tag) noexcept { tag_ = static_cast<std::uint32_t>(tag); }
    std::uint32_t tag() const noexcept { return tag_; }

    // Begins a run. `run`: that of the context.
    void start(const Run &run) noexcept {
        signature_ = bindings_.match.signature ^ run.history;
        acquired_ = advertised_ = stopped_ = masks_known_ = false;
        forwarded_.start();
        if (bindings_.match.recent_calls != nullptr)
            bindings_.match.recent_calls->record(run.sequence, signature_,
                                                 bindings_.match.pair_digests);
    }
    // A lane has acquired the slot of the run. Before that, local peers may still compare calls of
    // the previous run. Returns true for the first lane.
    bool acquired() noexcept {
        if (std::exchange(acquired_, true)) return false;
        if (advertises_on_acquire_) advertise_to_node();
        return true;
    }
    // This rank is about to raise a flag.
    void before_signal() noexcept {
        if (advertises_with_flag_) advertise_to_node();
    }

    // The signature of this run, and the signature as shown to `peer`.
    std::uint32_t signature() const noexcept { return signature_; }
    std::uint32_t shown_to(int peer) const noexcept {
        return signature_for(peer, signature_, bindings_.match.pair_digests);
    }
    // The signature that a peer has shown in this run; 0: none yet.
    std::uint32_t shown_by(int peer) const noexcept;

    // Called once the flag of a wait has been raised. False: the peer made another call. Then this
    // rank must not use the data of the peer, and stopped() is true.
    bool accept(const BoundStep &wait) noexcept;
    bool stopped() const noexcept { return stopped_; }

    // Conditional steps: true once the receive masks of this node are known.
    bool has_masks() noexcept;
    bool knows_masks() const noexcept { return masks_known_; }
    const ForwardedMatch &forwarded() const noexcept { return forwarded_; }
    // Puts the signature of a forwarded block beside it.
    void put_signature(const BoundStep &put, std::atomic<std::uint32_t> &pending) noexcept {
        forwarded_.put_signature(put, signature_, pending);
    }

    // True: completion of a run proves that all ranks made the same call.
    bool proven_by_completion() const noexcept { return proven_by_completion_; }
    // True: no rank of this node has shown another call. Not for messages.
    bool agrees_with_node() const noexcept;
    // Two ranks that made different calls, as far as this rank knows. Messages: see
    // MessageReceiver::find_mismatch().
    std::optional<Mismatch> find_mismatch() const noexcept;

    // True: this run may advertise.
    bool advertises() const noexcept {
        return bindings_.match.signature != 0 && !bindings_.is_message() && acquired_;
    }
    void advertise_to_node() noexcept;
    // To a rank of another node; does nothing for a local peer.
    void advertise_to(int peer) noexcept;

private:
    // shown_by() of a local peer, by its local rank.
    std::uint32_t shown_by_local(std::size_t local) const noexcept;
    // `of`, `with`: local ranks.
    std::atomic_ref<std::uint32_t> pair_digest(std::size_t of, std::size_t with) const noexcept;

    const Bindings &bindings_;
    const RunContext &context_;
    const SignalBoard *const board_;
    ForwardedMatch forwarded_;
    bool inline_ = false;  // the schedule raises inline_flag or the pair flags
    bool proven_by_completion_ = false;
    // Local peers get the signature at acquired(), or beside the first flag of a message, in the
    // same cache line.
    bool advertises_on_acquire_ = false, advertises_with_flag_ = false;
    // The current run.
    std::uint32_t signature_ = 0;
    std::uint32_t tag_ = 0;
    bool acquired_ = false;
    bool advertised_ = false;  // to the node
    bool stopped_ = false;
    bool masks_known_ = false;
};

}  // namespace vescomm::internal
