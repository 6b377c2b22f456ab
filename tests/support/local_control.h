// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A control plane between threads of one process, for tests of transports and communicators without
// sockets.
#pragma once

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
    ~LocalControl() override;

    int rank() const override { return rank_; }
    int ranks() const override { return hub_->ranks; }

    void start_all_gather(std::string_view label, std::string_view bytes) override;

    std::optional<std::vector<std::string>> test_all_gather() override;

    [[noreturn]] void expire_all_gather(double) override;

    void start_leave() override;
    bool test_leave() override;
    void end_leave() noexcept override {}
    bool has_left(int rank) const override;
    bool any_has_left() const override;

    void on_event(std::function<void()> call) override;
    void wait_event(std::uint64_t seen, Clock::time_point until) override;
    std::uint64_t events() const override;

    void listen(Listener listener) override;

    void fail(vescomm_status_t status, const std::string &why) noexcept override;

    bool send_note(int rank, std::string bytes) override;
    std::vector<std::pair<int, std::string>> take_notes() override;
    bool has_notes() const noexcept override;

    std::unique_ptr<Control> subgroup(std::string_view words, const std::vector<int> &members,
                                      Deadline) override;

    FrameKey derive_key(std::string_view purpose) const override;
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
