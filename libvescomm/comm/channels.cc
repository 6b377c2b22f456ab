// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/channels.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.h"

namespace vescomm::internal {

namespace {

static_assert(sizeof(Channel) == 8);

// Offers come from the network: an incomplete entry is ignored.
std::vector<Channel> parse(const std::string &offer) {
    std::vector<Channel> channels(std::min(offer.size() / sizeof(Channel), Channels::max_offered));
    if (!channels.empty())
        std::memcpy(channels.data(), offer.data(), channels.size() * sizeof(Channel));
    return channels;
}

}  // namespace

std::uint32_t Channels::fresh_locked(std::uint32_t wanted) {
    // The sentence is the same on all ranks, although each of them may have freed other channels.
    if (wanted > count_ - used_)
        throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                    "this communicator has all of its " + std::to_string(count_) +
                        " channels in use, by requests and memories that have not been freed on "
                        "every rank; free some, or make another communicator");
    const std::uint32_t first = used_;
    used_ += wanted;
    return first;
}

std::uint32_t Channels::fresh(std::uint32_t wanted) {
    const std::lock_guard lock(mutex_);
    return fresh_locked(wanted);
}

std::string Channels::offer() const {
    const std::lock_guard lock(mutex_);
    std::string offer;
    const auto add = [&](auto first, auto last) {
        for (; first != last && offer.size() < max_offered * sizeof(Channel); ++first) {
            const Channel channel{first->first, first->second};
            offer.append(reinterpret_cast<const char *>(&channel), sizeof channel);
        }
    };
    const auto middle = free_.lower_bound(cursor_);
    add(middle, free_.end());
    add(free_.begin(), middle);
    return offer;
}

std::optional<Channel> Channels::take(const std::vector<std::string> &offers) {
    const std::lock_guard lock(mutex_);
    std::optional<std::vector<Channel>> common;
    // The offers of all ranks are complete for this many channels behind the cursor.
    std::uint32_t covered = used_;
    for (const std::string &offer : offers) {
        std::vector<Channel> free = parse(offer);
        if (free.size() == max_offered && free.back().number < used_)
            covered = std::min(covered, behind_cursor(free.back().number) + 1);
        std::erase_if(free, [&](Channel &channel) {
            if (channel.runs > max_runs_of_free || channel.number >= used_) return true;
            if (!common) return false;
            const auto same = std::ranges::find(*common, channel.number, &Channel::number);
            if (same == common->end()) return true;
            channel.runs = std::max(channel.runs, same->runs);
            return false;
        });
        common = std::move(free);
    }
    if (common && !common->empty()) {
        const Channel taken = *std::ranges::min_element(
            *common, {}, [&](const Channel &channel) { return behind_cursor(channel.number); });
        advance_cursor(behind_cursor(taken.number) + 1);
        searched_ = 0;
        free_.erase(taken.number);
        return taken;
    }
    searched_ += covered;
    const bool searched_all = searched_ >= used_;
    if (covered > 0) advance_cursor(covered);
    if (used_ == count_ && !searched_all) return {};
    searched_ = 0;
    return Channel{.number = fresh_locked(1), .runs = 0};
}

void Channels::give_back(Channel channel) noexcept {
    if (channel.runs > max_runs_of_free) return;
    try {
        const std::lock_guard lock(mutex_);
        free_[channel.number] = channel.runs;
    } catch (const std::bad_alloc &) {
        // The channel is not used again.
    }
}

}  // namespace vescomm::internal
