// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>

#include "bootstrap/control.h"
#include "bootstrap/session.h"

namespace vescomm::internal {

// The control plane of a communicator: one group of a session.
class GroupControl final : public Control {
public:
    GroupControl(std::shared_ptr<Session> session, std::shared_ptr<GroupState> state);
    ~GroupControl() override;

    // Waits until every member has opened the group. Throws Error.
    // `parent`: a group whose failure ends the wait, or nullptr.
    void wait_until_open(const std::string &label, Deadline deadline, const GroupState *parent);

    const std::shared_ptr<Session> &session() const { return session_; }
    const GroupState &group() const { return *state_; }

    int rank() const override { return state_->rank; }
    int ranks() const override { return state_->ranks(); }
    void start_all_gather(std::string_view label, std::string_view bytes) override;
    std::optional<std::vector<std::string>> test_all_gather() override;
    [[noreturn]] void expire_all_gather(double waited_seconds) override;
    void start_leave() override;
    bool test_leave() override;
    void end_leave() noexcept override;
    bool has_left(int rank) const override { return state_->has_left(rank); }
    bool any_has_left() const override { return state_->any_has_left(); }
    void on_event(std::function<void()> call) override { state_->on_event(std::move(call)); }
    void wait_event(std::uint64_t seen, Clock::time_point until) override {
        state_->wait(seen, until);
    }
    std::uint64_t events() const override { return state_->reports(); }
    void listen(Listener listener) override;
    void fail(vescomm_status_t status, const std::string &why) noexcept override;
    void flush_failure() noexcept override;
    bool send_note(int rank, std::string bytes) override;
    std::vector<std::pair<int, std::string>> take_notes() override { return state_->take_notes(); }
    bool has_notes() const noexcept override { return state_->has_notes(); }
    std::unique_ptr<Control> subgroup(std::string_view words, const std::vector<int> &members,
                                      Deadline deadline) override;
    Shrink shrinking() const override;
    FrameKey derive_key(std::string_view purpose) const override;
    std::string local_address() const override;
    Membership membership() const override;
    DescriptorExchange &descriptors() override { return session_->descriptors_; }

private:
    // Reference of the network's thread to the caller's side; cleared when the caller's side is
    // destroyed.
    struct FailureDelivery;

    void give_up(std::uint64_t sequence, double waited_seconds, const std::string &what);
    void check();

    std::shared_ptr<Session> session_;
    std::shared_ptr<GroupState> state_;
    std::shared_ptr<FailureDelivery> delivery_;
    std::string label_;  // label of the all-gather under way
    std::uint64_t sequence_ = 0;
    bool left_ = false;
};

}  // namespace vescomm::internal
