// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace vescomm {

// A channel of flags, and the highest run that its flags may show from earlier uses.
struct Channel {
    std::uint32_t number = 0;
    std::uint32_t runs = 0;
    bool operator==(const Channel &) const = default;
};

// The channels of a communicator: which ones were never used, and which ones this rank has given
// back. A channel is used again once all ranks have given it back: each says in a round that
// creation has anyway which ones are free here, and all take one that is free everywhere. The next
// user counts its runs on from the highest that any rank has seen, so whatever flag an earlier user
// has left, also one that is still on its way, is lower than all that come.
//
// Ranks free in different orders. All look for the next channel from the same place, behind the one
// that was taken last (next fit), so that each of them offers the same part of what it has free:
//
//     rank 0     used  free  used  free  free  free  used
//     rank 1     used  used  used  used  free  used  free
//                       ^cursor          ^taken
//
// Ranks must call fresh() and take() in the same order. Threads: safe.
class Channels {
public:
    // Channels that one rank offers in a round.
    static constexpr std::size_t max_offered = 32;
    // A channel with more runs than this is not used again: flags count 2^32 - 1 runs, and every
    // user gets at least 2^31.
    static constexpr std::uint32_t max_runs_of_free = (std::uint32_t{1} << 31) - 2;

    Channels() = default;
    // How many there are. Before the first use.
    void set_count(std::uint32_t count) { count_ = count; }

    // The first of some consecutive channels that were never used. Throws OUT_OF_MEMORY.
    std::uint32_t fresh(std::uint32_t wanted = 1);

    // The first channels from the cursor on that are free on this rank, and the runs each has had.
    std::string offer() const;
    // `offers` of all ranks, by rank: the first channel that is in all of them, with the most runs;
    // or one that was never used. Nothing when there is none of either, but others may be free on
    // all ranks: offer() says other ones now. Throws OUT_OF_MEMORY when there are none.
    std::optional<Channel> take(const std::vector<std::string> &offers);

    // `channel` is free on this rank; its flags here show no more than `runs`.
    void give_back(Channel channel) noexcept;

private:
    std::uint32_t fresh_locked(std::uint32_t wanted);
    // The place of a channel behind the cursor, in [0, used_).
    std::uint32_t behind_cursor(std::uint32_t number) const {
        return number >= cursor_ ? number - cursor_ : number + used_ - cursor_;
    }
    void advance_cursor(std::uint32_t by) { cursor_ = (cursor_ + by) % used_; }

    mutable std::mutex mutex_;
    std::uint32_t count_ = 0;
    std::uint32_t used_ = 0;  // channels below this one have been used
    std::uint32_t cursor_ = 0;  // the same on all ranks, as used_ is
    std::uint32_t searched_ = 0;  // channels that the cursor has passed without success
    std::map<std::uint32_t, std::uint32_t> free_;  // number to runs
};

}  // namespace vescomm
