// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "transport/transport.h"

namespace vescomm::internal {

// Limit of the channels that a received signal may name. It bounds the memory that a hostile
// message can make this process allocate.
inline constexpr std::uint32_t max_channels = 1u << 19;

// The signals that one peer has raised for this rank.
//
// The table grows with the channels in use and never moves, so readers need no lock. Segment k
// holds twice the channels of segment k - 1 and, once allocated, stays until the end.
//
// Threads: raise() from one thread at a time; read() from any.
class ReceivedSignals {
public:
    ReceivedSignals() = default;
    ReceivedSignals(const ReceivedSignals &) = delete;
    ReceivedSignals &operator=(const ReceivedSignals &) = delete;

    ~ReceivedSignals() {
        for (auto &segment : segments_) std::free(segment.load(std::memory_order_relaxed));
    }

    // Publishes everything written before. Returns false if there is no memory for the channel.
    bool raise(SignalName name, std::uint64_t value) noexcept {
        const Place place = find(name);
        std::uint64_t *segment = segments_[place.segment].load(std::memory_order_relaxed);
        if (segment == nullptr) {
            // calloc(): pages of channels that are never used stay unallocated.
            segment = static_cast<std::uint64_t *>(
                std::calloc(std::size_t{first_channels} << place.segment,
                            flags_per_channel * sizeof(std::uint64_t)));
            if (segment == nullptr) return false;
            segments_[place.segment].store(segment, std::memory_order_release);
        }
        std::atomic_ref<std::uint64_t> counter(segment[place.index]);
        // A signal never decreases, whatever a peer sends.
        if (value > counter.load(std::memory_order_relaxed))
            counter.store(value, std::memory_order_release);
        return true;
    }

    // Returns 0 before the first raise(), and for names out of range.
    std::uint64_t read(SignalName name) const noexcept {
        if (name.channel >= max_channels || name.flag >= flags_per_channel) return 0;
        const Place place = find(name);
        std::uint64_t *segment = segments_[place.segment].load(std::memory_order_acquire);
        if (segment == nullptr) return 0;
        return std::atomic_ref<std::uint64_t>(segment[place.index]).load(std::memory_order_acquire);
    }

private:
    struct Place {
        std::size_t segment;
        std::size_t index;
    };

    static constexpr std::uint32_t first_channels = 16;  // 1 KiB of counters
    static constexpr std::size_t max_segments = std::bit_width(max_channels / first_channels) + 1;

    static Place find(SignalName name) noexcept {
        const std::size_t segment = std::bit_width(name.channel / first_channels + 1) - 1;
        const std::size_t channels_before = first_channels * ((std::size_t{1} << segment) - 1);
        return {segment, (name.channel - channels_before) * flags_per_channel + name.flag};
    }

    std::array<std::atomic<std::uint64_t *>, max_segments> segments_{};
};

}  // namespace vescomm::internal
