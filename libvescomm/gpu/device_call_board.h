// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <tuple>

#include "gpu/device_call.h"

namespace vescomm::internal {

// The last calls of a rank on a device communicator: written by it, read by the other ranks of its
// node at any time. In shared memory that begins with zeros, which are those of no calls.
class DeviceCallBoard {
public:
    // Number of last calls that it has.
    static constexpr std::uint64_t ring_calls = 64;

    static std::size_t bytes(std::size_t members) {
        return sizeof(Head) + ring_calls * entry_bytes(members);
    }

    // `members`: as for bytes().
    DeviceCallBoard(std::byte *memory, std::size_t members) : memory_(memory), members_(members) {}

    // Number of calls so far.
    std::uint64_t calls() const { return head().calls.load(std::memory_order_acquire); }
    // True: the rank waits for its device.
    bool waits() const { return head().waiting.load(std::memory_order_acquire) != 0; }

    // A reader that sees a word of the new call sees number 0 or a later number afterwards.
    // `members`: the ranks of the node.
    void write(std::uint64_t number, const DeviceCall &call, const ExchangeCounts &counts,
               std::span<const int> members) const noexcept {
        const DeviceCall::Words values = call.words();
        Entry &entry = entry_of(number);
        entry.number.store(0, std::memory_order_relaxed);
        for (std::size_t i = 0; i < values.size(); ++i)
            entry.words[i].store(values[i], std::memory_order_release);
        if (!counts.sent.empty())
            for (std::size_t i = 0; i < members.size(); ++i) {
                const auto rank = static_cast<std::size_t>(members[i]);
                PairWords &pair = pair_of(number, i);
                pair.sent.store(static_cast<std::uint64_t>(counts.sent[rank]),
                                std::memory_order_release);
                pair.received.store(static_cast<std::uint64_t>(counts.received[rank]),
                                    std::memory_order_release);
            }
        entry.number.store(number, std::memory_order_release);
        head().calls.store(number, std::memory_order_release);
    }
    void set_waiting(bool waiting) const noexcept {
        head().waiting.store(waiting ? 1 : 0, std::memory_order_release);
    }

    // Nothing if the board does not have the call any more.
    std::optional<DeviceCall> read(std::uint64_t number) const noexcept {
        const Entry &entry = entry_of(number);
        DeviceCall::Words values;
        if (entry.number.load(std::memory_order_acquire) != number) return {};
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = entry.words[i].load(std::memory_order_acquire);
        if (entry.number.load(std::memory_order_relaxed) != number) return {};
        return DeviceCall::from_words(values);
    }

    // The counts of an exchange with a rank of the node, as read().
    std::optional<ExchangePair> read_pair(std::uint64_t number, std::size_t member) const noexcept {
        const Entry &entry = entry_of(number);
        if (entry.number.load(std::memory_order_acquire) != number) return {};
        const PairWords &pair = pair_of(number, member);
        const ExchangePair values = {
            static_cast<std::int64_t>(pair.sent.load(std::memory_order_acquire)),
            static_cast<std::int64_t>(pair.received.load(std::memory_order_acquire))};
        if (entry.number.load(std::memory_order_relaxed) != number) return {};
        return values;
    }

private:
    using Word = std::atomic<std::uint64_t>;
    struct Head {
        Word calls;
        Word waiting;  // 1: in a wait for its device
    };
    struct Entry {
        Word number;  // of the call, from 1; 0: it is being written
        std::array<Word, std::tuple_size_v<DeviceCall::Words>> words;
    };
    // Elements that the rank sends to another one of its node in an exchange, and receives from it.
    struct PairWords {
        Word sent, received;
    };

    Head &head() const { return *std::launder(reinterpret_cast<Head *>(memory_)); }
    static std::size_t entry_bytes(std::size_t members) {
        return sizeof(Entry) + members * sizeof(PairWords);
    }
    std::byte *place_of(std::uint64_t number) const {
        return memory_ + sizeof(Head) + number % ring_calls * entry_bytes(members_);
    }
    Entry &entry_of(std::uint64_t number) const {
        return *std::launder(reinterpret_cast<Entry *>(place_of(number)));
    }
    PairWords &pair_of(std::uint64_t number, std::size_t member) const {
        return *std::launder(reinterpret_cast<PairWords *>(place_of(number) + sizeof(Entry) +
                                                           member * sizeof(PairWords)));
    }

    std::byte *memory_;
    std::size_t members_;
};

}  // namespace vescomm::internal
