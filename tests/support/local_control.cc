// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "support/local_control.h"

#include <algorithm>
#include <utility>

namespace vescomm::internal::testing_support {

LocalControl::~LocalControl() {
    std::lock_guard lock(hub_->mutex);
    hub_->listeners[rank_] = nullptr;
    hub_->calls[rank_] = nullptr;
}

void LocalControl::start_all_gather(std::string_view label, std::string_view bytes) {
    std::lock_guard lock(hub_->mutex);
    if (hub_->status != VESCOMM_OK) throw Error(hub_->status, hub_->why);
    label_ = label;
    hub_->meetings[calls_].arrived[rank_] = {label_, std::string(bytes)};
    hub_->report();
}

std::optional<std::vector<std::string>> LocalControl::test_all_gather() {
    std::lock_guard lock(hub_->mutex);
    if (hub_->status != VESCOMM_OK) throw Error(hub_->status, hub_->why);
    const auto &arrived = hub_->meetings[calls_].arrived;
    if (arrived.size() < static_cast<std::size_t>(hub_->ranks)) return std::nullopt;
    ++calls_;
    std::vector<std::string> all;
    for (const auto &[peer, said] : arrived) {
        if (!is_same_call(said.first, arrived.at(0).first))
            throw Error(VESCOMM_ERROR_MISMATCH, "rank 0 called " + arrived.at(0).first +
                                                    " and rank " + std::to_string(peer) +
                                                    " called " + said.first);
        all.push_back(said.second);
    }
    return all;
}

void LocalControl::expire_all_gather(double) {
    std::string missing;
    {
        std::lock_guard lock(hub_->mutex);
        for (int peer = 0; peer < hub_->ranks; ++peer)
            if (!hub_->meetings[calls_].arrived.contains(peer))
                missing += " " + std::to_string(peer);
    }
    fail(VESCOMM_ERROR_TIMEOUT, label_ + ": no word from ranks" + missing);
    throw Error(hub_->status, hub_->why);
}

void LocalControl::start_leave() {
    std::lock_guard lock(hub_->mutex);
    hub_->left[rank_] = true;
    hub_->report();
}

bool LocalControl::test_leave() {
    std::lock_guard lock(hub_->mutex);
    return hub_->status != VESCOMM_OK || std::ranges::find(hub_->left, false) == hub_->left.end();
}

bool LocalControl::has_left(int rank) const {
    std::lock_guard lock(hub_->mutex);
    return hub_->left[rank];
}

bool LocalControl::any_has_left() const {
    std::lock_guard lock(hub_->mutex);
    return std::ranges::find(hub_->left, true) != hub_->left.end();
}

void LocalControl::on_event(std::function<void()> call) {
    std::lock_guard lock(hub_->mutex);
    hub_->calls[rank_] = std::move(call);
}

void LocalControl::wait_event(std::uint64_t seen, Clock::time_point until) {
    std::unique_lock lock(hub_->mutex);
    hub_->changed.wait_until(lock, until, [&] { return hub_->events != seen; });
}

std::uint64_t LocalControl::events() const {
    std::lock_guard lock(hub_->mutex);
    return hub_->events;
}

void LocalControl::listen(Listener listener) {
    std::unique_lock lock(hub_->mutex);
    if (hub_->status == VESCOMM_OK) {
        hub_->listeners[rank_] = std::move(listener);
        return;
    }
    lock.unlock();
    listener(hub_->status, hub_->why);
}

void LocalControl::fail(vescomm_status_t status, const std::string &why) noexcept {
    std::lock_guard lock(hub_->mutex);
    if (hub_->status != VESCOMM_OK) return;
    hub_->status = status;
    hub_->why = why;
    // Listeners run under the lock, so that none is destroyed meanwhile.
    for (Listener &listener : hub_->listeners)
        if (listener) listener(status, why);
    hub_->report();
}

bool LocalControl::send_note(int rank, std::string bytes) {
    std::lock_guard lock(hub_->mutex);
    hub_->notes[rank].emplace_back(rank_, std::move(bytes));
    hub_->report();
    return true;
}

std::vector<std::pair<int, std::string>> LocalControl::take_notes() {
    std::lock_guard lock(hub_->mutex);
    return std::exchange(hub_->notes[rank_], {});
}

bool LocalControl::has_notes() const noexcept {
    std::lock_guard lock(hub_->mutex);
    return !hub_->notes[rank_].empty();
}

std::unique_ptr<Control> LocalControl::subgroup(std::string_view words,
                                                const std::vector<int> &members, Deadline) {
    std::lock_guard lock(hub_->mutex);
    auto &group = hub_->subgroups[std::string(words)];
    if (!group) group = std::make_shared<LocalControlHub>(static_cast<int>(members.size()));
    const auto place = std::ranges::find(members, rank_) - members.begin();
    return std::make_unique<LocalControl>(group, static_cast<int>(place));
}

FrameKey LocalControl::derive_key(std::string_view purpose) const {
    return keyed_hash("the secret of the test", purpose);
}

}  // namespace vescomm::internal::testing_support
