// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace vescomm::internal {

// A channel of flags, and the highest run number that earlier users may have left in its flags.
struct Channel {
    std::uint32_t number = 0;
    std::uint32_t runs = 0;
    bool operator==(const Channel &) const = default;
};

// Allocates the channels of a communicator. Knows which channels were never used, and which ones
// this rank has given back.
//
// A channel is used again once all ranks have given it back. Every creation contains an all-gather
// anyway: each rank adds an offer to it, the channels that are free on this rank, and all ranks
// take the same channel out of all offers. Its next user continues the run numbers after the
// highest one that any rank has seen. A flag of an earlier user, even one still in flight, is
// therefore lower than every flag of the next user.
//
// Ranks free channels in different orders. All ranks search from the same place, behind the channel
// that was taken last (next fit), so all of them offer the same range of channels:
//
//     rank 0     used  free  used  free  free  free  used
//     rank 1     used  used  used  used  free  used  free
//                       ^cursor          ^taken
//
// Ranks must call fresh() and take() in the same order. Threads: safe.
class Channels {
public:
    // Channels in one offer.
    static constexpr std::size_t max_offered = 32;
    // A channel with more runs is not used again: a flag counts 2^32 - 1 runs, and every user gets
    // at least 2^31.
    static constexpr std::uint32_t max_runs_of_free = (std::uint32_t{1} << 31) - 2;

    Channels() = default;
    // Sets the number of channels, before the first use.
    void set_count(std::uint32_t count) { count_ = count; }

    // Takes `wanted` consecutive channels that were never used. Returns the first one. Throws
    // OUT_OF_MEMORY.
    std::uint32_t fresh(std::uint32_t wanted = 1);

    // The first channels, from the cursor on, that are free on this rank, with their runs.
    std::string offer() const;
    // Takes the first channel that is in all `offers` (of all ranks, by rank), with the highest
    // runs of any rank; otherwise a channel that was never used. Returns nothing if neither exists
    // but channels outside these offers may be free on all ranks: offer() then returns the next
    // ones. Throws OUT_OF_MEMORY if no channel is left.
    std::optional<Channel> take(const std::vector<std::string> &offers);

    // This rank no longer uses `channel`. Its flags on this rank are at most `channel.runs`.
    void give_back(Channel channel) noexcept;

private:
    std::uint32_t fresh_locked(std::uint32_t wanted);
    // Cyclic distance of a channel from the cursor, in [0, used_).
    std::uint32_t behind_cursor(std::uint32_t number) const {
        return number >= cursor_ ? number - cursor_ : number + used_ - cursor_;
    }
    void advance_cursor(std::uint32_t by) { cursor_ = (cursor_ + by) % used_; }

    mutable std::mutex mutex_;
    std::uint32_t count_ = 0;
    std::uint32_t used_ = 0;  // channels below this one have been used; the same on all ranks
    std::uint32_t cursor_ = 0;  // start of the next search; the same on all ranks
    std::uint32_t searched_ = 0;  // channels that the cursor has passed without success
    std::map<std::uint32_t, std::uint32_t> free_;  // number to runs
};

}  // namespace vescomm::internal
