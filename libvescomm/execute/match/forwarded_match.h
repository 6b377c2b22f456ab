// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "execute/match/mismatch.h"
#include "execute/program.h"
#include "execute/run_context.h"

namespace vescomm::internal {

// Compares the calls of two ranks whose bytes pass through a forwarding rank.
//
//     sender ── signature beside each block ──► forwarding rank ◄── receive masks ── receivers
//
// A receiver writes the signature that it expects from each sender into its receive mask. A sender
// puts its own signature beside the block. The forwarding rank forwards a block only if both are
// equal.
class ForwardedMatch {
public:
    // `receive_mask`: of the schedule; empty if it forwards nothing.
    ForwardedMatch(const Bindings &bindings, const RunContext &context,
                   const std::vector<std::uint8_t> &receive_mask);

    void start() noexcept { mismatch_.reset(); }

    // Publishes this rank's receive mask to its node; `signature`: of this run. The caller then
    // raises signature_flag.
    void publish_mask(std::uint32_t signature) noexcept;
    // True: a local peer has published its mask.
    bool has_mask(int local_peer) const noexcept;
    // True: some rank of this node expects a block of `peer`. Valid once all masks are published.
    bool any_local_receives(int peer) const noexcept;

    // Puts the signature of a block beside it. `pending`: counts the puts of the operation.
    void put_signature(const BoundStep &put, std::uint32_t signature,
                       std::atomic<std::uint32_t> &pending) noexcept;
    // Compares the signatures that a sender has put with the masks, once its flag has been raised.
    bool accept(const BoundStep &wait) noexcept;

    const std::optional<Mismatch> &mismatch() const noexcept { return mismatch_; }

private:
    const std::uint32_t *mask_of(std::size_t local) const noexcept {
        return reinterpret_cast<const std::uint32_t *>(
            context_.in_slot(local, bindings_.match.tables.receive_masks));
    }

    const Bindings &bindings_;
    const RunContext &context_;
    const std::vector<std::uint8_t> mask_;
    std::optional<Mismatch> mismatch_;
    std::vector<std::uint64_t> words_;  // by final peer: source of put_signature()
};

}  // namespace vescomm::internal
