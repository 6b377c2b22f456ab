// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/cache.h"
#include "execute/bindings.h"
#include "execute/match/call_match.h"
#include "execute/program.h"
#include "execute/run_context.h"
#include "transport/signal_board.h"

namespace vescomm::internal {

// The flags of an operation that lie beside data in the staging buffer: inline_flag and the pair
// flags (docs/design/0008). A flag carries the run, the signature, and the releases of its rank.
class InlineFlags {
public:
    InlineFlags(const Bindings &bindings, const RunContext &context, const CallMatch &match,
                const Program &program)
        : bindings_(bindings),
          context_(context),
          match_(match),
          program_(program),
          board_(bindings.intra_node->board()),
          releases_(bindings.sequences == nullptr ? nullptr : &board_->own(bindings.release)) {}

    // True: a local peer has raised its inline flag, or with `pairs` its pair flag for this rank,
    // in the same call. `local`: its local rank.
    bool raised(bool pairs, std::size_t local, int peer) noexcept {
        const InlineFlag &flag =
            pairs ? context_.pair_flag_of(local, context_.local()) : context_.inline_flag_of(local);
        if (flag.call.load(std::memory_order_acquire) != context_.word(match_.shown_to(peer)))
            return false;
        bindings_.sequences->observe(local, flag.released.load(std::memory_order_relaxed));
        return true;
    }

    // Raises the inline flag, or with `pairs` the pair flags for all local peers.
    void raise(bool pairs) noexcept {
        if (!pairs) {
            raise(context_.inline_flag_of(context_.local()), match_.signature());
        } else {
            for (std::size_t local = 0; local < context_.locals().size(); ++local)
                if (local != context_.local())
                    raise(context_.pair_flag_of(context_.local(), local),
                          match_.shown_to(context_.locals()[local]));
        }
        board_->stored();
    }

    // Shows the local peers which operations this rank has released.
    void publish_releases() noexcept {
        releases_->store(bindings_.sequences->released(), std::memory_order_release);
        board_->stored();
    }

    // Prefetches the flags, and the first inline data, of the operation after the next one. This
    // rank stores there soon, and waits for its stores before it compares calls.
    void prefetch_next_but_one() const noexcept {
        if (context_.locals().size() == 1) return;
        const Run &run = context_.run();
        if (program_.inline_bytes > 0) {
            const auto away = slot_distance(run.channel, (run.channel + 2) % inline_slots,
                                            bindings_.inlined.slot_bytes);
            const std::byte *next = bytes_of(context_.inline_flag_of(context_.local())) + away;
            prefetch_to_write(next);
            if (program_.inline_bytes > cache_line - sizeof(InlineFlag))
                prefetch_to_write(next + cache_line);
        }
        constexpr std::size_t few = 8;
        if (!program_.uses_pair_flags || context_.locals().size() > few) return;
        const auto away =
            slot_distance(run.slot, (run.slot + 2) % staging_slots, bindings_.staging.slot_bytes);
        for (std::size_t local = 0; local < context_.locals().size(); ++local)
            if (local != context_.local())
                prefetch_to_write(bytes_of(context_.pair_flag_of(context_.local(), local)) + away);
    }

private:
    static const std::byte *bytes_of(const InlineFlag &flag) noexcept {
        return reinterpret_cast<const std::byte *>(&flag);
    }
    void raise(InlineFlag &flag, std::uint32_t signature) noexcept {
        flag.released.store(bindings_.sequences->released(), std::memory_order_relaxed);
        flag.call.store(context_.word(signature), std::memory_order_release);
    }

    const Bindings &bindings_;
    const RunContext &context_;
    const CallMatch &match_;
    const Program &program_;
    SignalBoard *const board_;
    std::atomic<std::uint64_t> *const releases_;  // of this rank; nullptr: no staging buffer
};

}  // namespace vescomm::internal
