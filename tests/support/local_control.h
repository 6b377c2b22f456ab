// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A control plane for the threads of one process, so that transports and communicators can be
// tested without sockets.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "bootstrap/control.h"

namespace vescomm::testing_support {

class LocalControlHub {
public:
    explicit LocalControlHub(int ranks)
        : ranks(ranks), listeners(ranks), wakes(ranks), left(ranks, false) {}

    // Ranks meet by the number of their call, which all count alike.
    struct Meeting {
        std::map<int, std::pair<std::string, std::string>> arrived;  // rank -> label, bytes
        int told = 0;  // ranks that have the result
    };

    // With the mutex.
    void tell_event() {
        changed.notify_all();
        for (const auto &wake : wakes)
            if (wake) wake();
    }

    const int ranks;
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::uint64_t, Meeting> meetings;
    std::vector<Control::Listener> listeners;
    std::vector<std::function<void()>> wakes;
    vescomm_status_t status = VESCOMM_OK;
    std::string why;
    std::vector<bool> left;
};

class LocalControl final : public Control {
public:
    LocalControl(std::shared_ptr<LocalControlHub> hub, int rank)
        : hub_(std::move(hub)), rank_(rank) {}
    ~LocalControl() override {
        std::lock_guard lock(hub_->mutex);
        // One that was made to tell of a failure has neither.
        if (listens_) hub_->listeners[rank_] = nullptr;
        if (wakes_) hub_->wakes[rank_] = nullptr;
    }

    int rank() const override { return rank_; }
    int ranks() const override { return hub_->ranks; }

    void start_all_gather(std::string_view label, std::string_view bytes) override {
        std::lock_guard lock(hub_->mutex);
        hub_->meetings[calls_].arrived[rank_] = {std::string(label), std::string(bytes)};
        label_ = label;
        hub_->tell_event();
    }

    std::optional<std::vector<std::string>> test_all_gather() override {
        std::lock_guard lock(hub_->mutex);
        if (hub_->status != VESCOMM_OK) throw Error(hub_->status, hub_->why);
        auto &meeting = hub_->meetings.at(calls_);
        if (!complete(meeting)) return {};
        const auto arrived = meeting.arrived;
        if (++meeting.told == hub_->ranks) hub_->meetings.erase(calls_);
        ++calls_;
        std::vector<std::string> all;
        for (const auto &[peer, said] : arrived) {
            if (said.first != arrived.at(0).first)
                throw Error(VESCOMM_ERROR_MISMATCH, "rank 0 called " + arrived.at(0).first +
                                                        " and rank " + std::to_string(peer) +
                                                        " called " + said.first);
            all.push_back(said.second);
        }
        return all;
    }

    [[noreturn]] void expire_all_gather(double) override {
        std::string missing;
        {
            std::lock_guard lock(hub_->mutex);
            for (int peer = 0; peer < hub_->ranks; ++peer)
                if (!hub_->meetings.at(calls_).arrived.contains(peer))
                    missing += " " + std::to_string(peer);
        }
        fail(VESCOMM_ERROR_TIMEOUT, label_ + ": no word from ranks" + missing);
        std::lock_guard lock(hub_->mutex);
        throw Error(hub_->status, hub_->why);
    }

    void on_event(std::function<void()> wake) override {
        std::lock_guard lock(hub_->mutex);
        hub_->wakes[rank_] = std::move(wake);
        wakes_ = true;
    }
    FrameKey derive_key(std::string_view purpose) const override {
        return derived_key("the secret of the test", purpose);
    }
    std::string local_address() const override { return "127.0.0.1"; }

    void listen(Listener listener) override {
        std::unique_lock lock(hub_->mutex);
        if (hub_->status == VESCOMM_OK) {
            hub_->listeners[rank_] = std::move(listener);
            listens_ = true;
            return;
        }
        lock.unlock();
        listener(hub_->status, hub_->why);
    }

    void fail(vescomm_status_t status, const std::string &why) noexcept override {
        std::lock_guard lock(hub_->mutex);
        if (hub_->status != VESCOMM_OK) return;
        hub_->status = status;
        hub_->why = why;
        // Called under the lock, so that no listener goes away meanwhile.
        for (Listener &listener : hub_->listeners)
            if (listener) listener(status, why);
        hub_->tell_event();
    }

    void start_leave() override {
        std::lock_guard lock(hub_->mutex);
        hub_->left[rank_] = true;
        hub_->tell_event();
    }
    bool test_leave() override {
        std::lock_guard lock(hub_->mutex);
        return ended();
    }
    bool has_left(int rank) const override {
        std::lock_guard lock(hub_->mutex);
        return hub_->left[rank];
    }

private:
    bool complete(const LocalControlHub::Meeting &meeting) const {
        return meeting.arrived.size() == static_cast<std::size_t>(hub_->ranks);
    }
    bool ended() const {
        return hub_->status != VESCOMM_OK ||
               std::ranges::find(hub_->left, false) == hub_->left.end();
    }

    void sleep_until_event(Deadline deadline) override {
        std::unique_lock lock(hub_->mutex);
        const auto event = [&] {
            const auto meeting = hub_->meetings.find(calls_);
            return ended() || (meeting != hub_->meetings.end() && complete(meeting->second));
        };
        hub_->changed.wait_until(lock, deadline.moment(), event);
    }

    std::shared_ptr<LocalControlHub> hub_;
    int rank_;
    bool listens_ = false, wakes_ = false;
    std::uint64_t calls_ = 0;
    std::string label_;
};

}  // namespace vescomm::testing_support
