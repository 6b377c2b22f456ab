// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "execute/bases.h"
#include "execute/bindings.h"

namespace vescomm::internal {

// One run of an operation.
struct Run {
    std::uint64_t number = 1;  // on its channel, from 1; the same on every rank
    // Buffers: number of releases by every rank of this node after which the memory may be
    // overwritten.
    std::uint64_t releases = 0;
    std::uint32_t slot = 0;  // staging buffer (staging slot) and eager buffers
    // Added to the channels of Bindings. Staging buffer: the inline slot; eager buffers: the slot.
    std::uint32_t channel = 0;
    // Staging buffer: digest of earlier calls that were not compared; a part of the signature. 0:
    // none.
    std::uint32_t history = 0;
    std::uint64_t sequence = 0;  // staging buffer: the slot sequence number
};

// The run of a message: of the `number`-th one, from 0, of its sender to its receiver.
inline Run run_of_message(std::uint64_t number, std::uint32_t slots) noexcept {
    const auto slot = static_cast<std::uint32_t>(number % slots);
    return {.number = number / slots + 1, .slot = slot, .channel = slot};
}

// One run of an operation, the same on all ranks.
struct RunId {
    std::uint32_t channel = 0;
    std::uint32_t number = 0;
    bool operator==(const RunId &) const = default;
};

// The current run of an operation as its executor and its call matcher see it: names and values of
// flags, and the slot.
class RunContext {
public:
    explicit RunContext(const Bindings &bindings)
        : own_channel_(bindings.channel),
          peer_channel_(bindings.is_message() ? bindings.message.peer_channel : bindings.channel),
          slot_bytes_(bindings.staging.slot_bytes),
          inline_bytes_(bindings.inlined.slot_bytes),
          pairs_(bindings.pairs),
          registered_words_(bindings.registration.words) {
        const auto members = bindings.nodes.members(bindings.nodes.node_of(bindings.rank));
        locals_.assign(members.begin(), members.end());
        local_ = static_cast<std::size_t>(bindings.nodes.local_rank(bindings.rank));
        if (!bindings.staging.mapping) return;
        for (const int peer : locals_) slots_.push_back(bindings.staging.mapping->base(peer));
    }

    void start(const Run &run) noexcept {
        run_ = run;
        slot_offset_ = run.slot * slot_bytes_;
        inline_offset_ = run.channel * inline_bytes_;
    }
    const Run &run() const noexcept { return run_; }
    // Before a run: changes the channel of the flags that this rank raises.
    void set_channel(std::uint32_t channel) noexcept { own_channel_ = channel; }

    // Ranks of this node, ascending; this rank's place among them.
    const std::vector<int> &locals() const noexcept { return locals_; }
    std::size_t local() const noexcept { return local_; }

    // A flag that this rank raises; the flag that a peer raises for this rank.
    SignalName own(std::uint32_t flag) const noexcept {
        return {own_channel_ + run_.channel, flag};
    }
    SignalName of_peer(std::uint32_t flag) const noexcept {
        return {peer_channel_ + run_.channel, flag};
    }

    // Flags and tables hold the number of the run in the upper half of each word.
    std::uint64_t word(std::uint32_t value) const noexcept { return run_.number << 32 | value; }
    bool is_current(std::uint64_t word) const noexcept { return word >> 32 == run_.number; }

    // Bytes in this run's slot of a local peer. `offset`: in slot 0, from the first byte of the
    // memory.
    std::byte *in_slot(std::size_t local, std::uint64_t offset) const noexcept {
        return slots_[local] + slot_offset_ + offset;
    }
    InlineFlag &inline_flag_of(std::size_t local) const noexcept {
        return *reinterpret_cast<InlineFlag *>(slots_[local] + inline_offset_);
    }
    // The pair flag that local peer `of` raises for local peer `to`.
    InlineFlag &pair_flag_of(std::size_t of, std::size_t to) const noexcept {
        return *reinterpret_cast<InlineFlag *>(in_slot(of, pairs_.begin + to * pairs_.stride));
    }
    // A word that a local peer publishes about its registered arrays.
    std::uint64_t *registered_word(std::size_t local, std::size_t word) const noexcept {
        return reinterpret_cast<std::uint64_t *>(in_slot(local, registered_words_)) + word;
    }
    // Offset of this run's slot from the first byte of a memory with slots.
    std::uint64_t slot_offset() const noexcept { return slot_offset_; }
    // Offset of a slot of this run from slot 0 of its kind.
    std::uint64_t offset_of(SlotKind slot) const noexcept {
        if (slot == SlotKind::none) return 0;
        return slot == SlotKind::inlined ? inline_offset_ : slot_offset_;
    }

private:
    Run run_;
    std::vector<int> locals_;
    std::size_t local_ = 0;
    std::uint32_t own_channel_, peer_channel_;
    std::uint64_t slot_bytes_, inline_bytes_;
    PairAreaBytes pairs_;
    std::uint64_t registered_words_;
    std::uint64_t slot_offset_ = 0, inline_offset_ = 0;
    std::vector<std::byte *> slots_;  // the memory with slots, by local rank
};

}  // namespace vescomm::internal
