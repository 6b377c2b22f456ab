// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A control plane for the threads of one process, so that transports and communicators can be
// tested without sockets.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "bootstrap/control.h"

namespace vescomm::testing_support {

class LocalControlHub {
public:
    explicit LocalControlHub(int ranks) : ranks(ranks), listeners(ranks) {}

    // Ranks meet by the number of their call, which all count alike.
    struct Meeting {
        std::map<int, std::pair<std::string, std::string>> arrived;  // rank -> label, bytes
    };

    const int ranks;
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::uint64_t, Meeting> meetings;
    std::vector<Control::Listener> listeners;
    vescomm_status_t status = VESCOMM_OK;
    std::string why;
    int left = 0;
};

class LocalControl final : public Control {
public:
    LocalControl(std::shared_ptr<LocalControlHub> hub, int rank)
        : hub_(std::move(hub)), rank_(rank) {}
    ~LocalControl() override {
        std::lock_guard lock(hub_->mutex);
        hub_->listeners[rank_] = nullptr;
    }

    int rank() const override { return rank_; }
    int ranks() const override { return hub_->ranks; }

    std::vector<std::string> all_gather(std::string_view label, std::string_view bytes,
                                        Deadline deadline) override {
        std::unique_lock lock(hub_->mutex);
        const auto ready = [&](LocalControlHub::Meeting &meeting) {
            return hub_->status != VESCOMM_OK ||
                   meeting.arrived.size() == static_cast<std::size_t>(hub_->ranks);
        };
        auto &meeting = hub_->meetings[calls_++];
        meeting.arrived[rank_] = {std::string(label), std::string(bytes)};
        hub_->changed.notify_all();
        if (!hub_->changed.wait_until(lock, deadline.moment(), [&] { return ready(meeting); })) {
            std::string missing;
            for (int peer = 0; peer < hub_->ranks; ++peer)
                if (!meeting.arrived.contains(peer)) missing += " " + std::to_string(peer);
            lock.unlock();
            fail(VESCOMM_ERROR_TIMEOUT, std::string(label) + ": no word from ranks" + missing);
            lock.lock();
        }
        if (hub_->status != VESCOMM_OK) throw Error(hub_->status, hub_->why);
        std::vector<std::string> all;
        for (const auto &[peer, said] : meeting.arrived) {
            if (said.first != meeting.arrived[0].first)
                throw Error(VESCOMM_ERROR_MISMATCH, "rank 0 called " + meeting.arrived[0].first +
                                                        " and rank " + std::to_string(peer) +
                                                        " called " + said.first);
            all.push_back(said.second);
        }
        return all;
    }

    void listen(Listener listener) override {
        std::unique_lock lock(hub_->mutex);
        if (hub_->status == VESCOMM_OK) {
            hub_->listeners[rank_] = std::move(listener);
            return;
        }
        lock.unlock();
        listener(hub_->status, hub_->why);
    }

    void fail(vescomm_status_t status, const std::string &why) noexcept override {
        std::vector<Listener> listeners;
        {
            std::lock_guard lock(hub_->mutex);
            if (hub_->status != VESCOMM_OK) return;
            hub_->status = status;
            hub_->why = why;
            // Called under the lock, so that no listener goes away meanwhile.
            for (Listener &listener : hub_->listeners)
                if (listener) listener(status, why);
            hub_->changed.notify_all();
        }
    }

    void leave(Deadline deadline) noexcept override {
        std::unique_lock lock(hub_->mutex);
        ++hub_->left;
        hub_->changed.notify_all();
        hub_->changed.wait_until(lock, deadline.moment(), [&] {
            return hub_->status != VESCOMM_OK || hub_->left == hub_->ranks;
        });
    }

private:
    std::shared_ptr<LocalControlHub> hub_;
    int rank_;
    std::uint64_t calls_ = 0;
};

}  // namespace vescomm::testing_support
