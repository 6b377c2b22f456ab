// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A control plane between threads of one process, for tests of transports and communicators without
// sockets.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bootstrap/control.h"
#include "bootstrap/control_thread.h"
#include "bootstrap/descriptor_exchange.h"
#include "bootstrap/gathering.h"

namespace vescomm::internal::testing_support {

class LocalControlHub {
public:
    explicit LocalControlHub(int ranks)
        : ranks(ranks),
          listeners(static_cast<std::size_t>(ranks)),
          calls(static_cast<std::size_t>(ranks)),
          left(static_cast<std::size_t>(ranks)),
          notes(static_cast<std::size_t>(ranks)) {}

    // One all-gather. Ranks match their calls by sequence number.
    struct Meeting {
        std::map<int, std::pair<std::string, std::string>> arrived;  // rank -> label, bytes
    };

    // Records an event and wakes every rank. The caller holds the lock.
    void report() {
        ++events;
        changed.notify_all();
        for (const auto &call : calls)
            if (call) call();
    }

    const int ranks;
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t events = 0;
    std::map<std::uint64_t, Meeting> meetings;  // by sequence number
    std::vector<Control::Listener> listeners;
    std::vector<std::function<void()>> calls;
    std::vector<bool> left;
    std::vector<std::vector<std::pair<int, std::string>>> notes;  // by receiver
    vescomm_status_t status = VESCOMM_OK;
    std::string why;
    std::map<std::string, std::shared_ptr<LocalControlHub>> subgroups;
    // Node memory exchanges descriptors through sockets, as between processes.
    std::shared_ptr<ControlThread> thread = ControlThread::get();
};

class LocalControl final : public Control {
public:
    LocalControl(std::shared_ptr<LocalControlHub> hub, int rank)
        : hub_(std::move(hub)), rank_(rank), descriptors_(hub_->thread->network()) {}
    ~LocalControl() override {
        std::lock_guard lock(hub_->mutex);
        hub_->listeners[rank_] = nullptr;
        hub_->calls[rank_] = nullptr;
    }

    int rank() const override { return rank_; }
    int ranks() const override { return hub_->ranks; }

    void start_all_gather(std::string_view label, std::string_view bytes) override {
        std::lock_guard lock(hub_->mutex);
        if (hub_->status != VESCOMM_OK) throw Error(hub_->status, hub_->why);
        label_ = label;
        hub_->meetings[calls_].arrived[rank_] = {label_, std::string(bytes)};
        hub_->report();
    }

    std::optional<std::vector<std::string>> test_all_gather() override {
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

    [[noreturn]] void expire_all_gather(double) override {
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

    void start_leave() override {
        std::lock_guard lock(hub_->mutex);
        hub_->left[rank_] = true;
        hub_->report();
    }
    bool test_leave() override {
        std::lock_guard lock(hub_->mutex);
        return hub_->status != VESCOMM_OK ||
               std::ranges::find(hub_->left, false) == hub_->left.end();
    }
    void end_leave() noexcept override {}
    bool has_left(int rank) const override {
        std::lock_guard lock(hub_->mutex);
        return hub_->left[rank];
    }
    bool any_has_left() const override {
        std::lock_guard lock(hub_->mutex);
        return std::ranges::find(hub_->left, true) != hub_->left.end();
    }

    void on_event(std::function<void()> call) override {
        std::lock_guard lock(hub_->mutex);
        hub_->calls[rank_] = std::move(call);
    }
    void wait_event(std::uint64_t seen, Clock::time_point until) override {
        std::unique_lock lock(hub_->mutex);
        hub_->changed.wait_until(lock, until, [&] { return hub_->events != seen; });
    }
    std::uint64_t events() const override {
        std::lock_guard lock(hub_->mutex);
        return hub_->events;
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
        std::lock_guard lock(hub_->mutex);
        if (hub_->status != VESCOMM_OK) return;
        hub_->status = status;
        hub_->why = why;
        // Listeners run under the lock, so that none is destroyed meanwhile.
        for (Listener &listener : hub_->listeners)
            if (listener) listener(status, why);
        hub_->report();
    }

    bool send_note(int rank, std::string bytes) override {
        std::lock_guard lock(hub_->mutex);
        hub_->notes[rank].emplace_back(rank_, std::move(bytes));
        hub_->report();
        return true;
    }
    std::vector<std::pair<int, std::string>> take_notes() override {
        std::lock_guard lock(hub_->mutex);
        return std::exchange(hub_->notes[rank_], {});
    }
    bool has_notes() const noexcept override {
        std::lock_guard lock(hub_->mutex);
        return !hub_->notes[rank_].empty();
    }

    std::unique_ptr<Control> subgroup(std::string_view words, const std::vector<int> &members,
                                      Deadline) override {
        std::lock_guard lock(hub_->mutex);
        auto &group = hub_->subgroups[std::string(words)];
        if (!group) group = std::make_shared<LocalControlHub>(static_cast<int>(members.size()));
        const auto place = std::ranges::find(members, rank_) - members.begin();
        return std::make_unique<LocalControl>(group, static_cast<int>(place));
    }

    FrameKey derive_key(std::string_view purpose) const override {
        return keyed_hash("the secret of the test", purpose);
    }
    std::string local_address() const override { return "127.0.0.1"; }
    DescriptorExchange &descriptors() override { return descriptors_; }

private:
    std::shared_ptr<LocalControlHub> hub_;
    int rank_;
    std::uint64_t calls_ = 0;
    std::string label_;
    DescriptorExchange descriptors_;
};

}  // namespace vescomm::internal::testing_support
