// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The parts of a control plane that are the same for all: waits, and services that it lacks.
#include "bootstrap/control.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/interrupt.h"

namespace vescomm::internal {
namespace {

// Rank 1 of three. The other ranks come never, or at once.
class PlainControl final : public Control {
public:
    explicit PlainControl(bool others_come) : others_come_(others_come) {}

    bool leave_ended() const { return leave_ended_; }

    int rank() const override { return 1; }
    int ranks() const override { return 3; }
    void start_all_gather(std::string_view, std::string_view bytes) override { mine_ = bytes; }
    std::optional<std::vector<std::string>> test_all_gather() override {
        if (failure_) throw Error(*failure_);
        if (!others_come_) return std::nullopt;
        return std::vector<std::string>{"zero", mine_, "two"};
    }
    [[noreturn]] void expire_all_gather(double) override {
        throw Error(VESCOMM_ERROR_TIMEOUT, "ranks 0 and 2 are missing");
    }
    void start_leave() override {
        if (failure_) throw Error(*failure_);
    }
    bool test_leave() override { return others_come_; }
    void end_leave() noexcept override { leave_ended_ = true; }
    bool has_left(int) const override { return others_come_; }
    bool any_has_left() const override { return others_come_; }
    void on_event(std::function<void()>) override {}
    void wait_event(std::uint64_t, Clock::time_point) override {}
    std::uint64_t events() const override { return 0; }
    void listen(Listener) override {}
    void fail(vescomm_status_t status, const std::string &why) noexcept override {
        failure_.emplace(status, why);
    }
    FrameKey derive_key(std::string_view) const override { return {}; }
    std::string local_address() const override { return {}; }

private:
    bool others_come_;
    bool leave_ended_ = false;
    std::string mine_;
    std::optional<Error> failure_;
};

template <typename Call>
vescomm_status_t status_of(const Call &call) {
    try {
        call();
    } catch (const Error &error) {
        return error.status;
    }
    return VESCOMM_OK;
}

TEST(Control, GathersOrEndsAtTheDeadline) {
    PlainControl complete(true), alone(false);
    EXPECT_EQ(complete.all_gather("call", "one", Deadline::after(0)),
              (std::vector<std::string>{"zero", "one", "two"}));
    EXPECT_EQ(status_of([&] { alone.all_gather("call", "one", Deadline::after(0)); }),
              VESCOMM_ERROR_TIMEOUT);
}

TEST(Control, EndsAGatherThatTheProgramInterrupts) {
    PlainControl alone(false);
    set_interrupt([](void *) { return 1; }, nullptr);
    try {
        alone.all_gather("the call", "one", Deadline::after(60));
        ADD_FAILURE() << "no other rank has come";
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_ABORTED);
        EXPECT_STREQ(error.what(), "rank 1 was interrupted in the call");
    }
    set_interrupt(nullptr, nullptr);
}

TEST(Control, LeavesAtTheDeadlineAtTheLatest) {
    for (const bool others_come : {true, false}) {
        PlainControl control(others_come);
        control.leave(Deadline::after(0));
        EXPECT_TRUE(control.leave_ended());
    }
    PlainControl broken(true);
    broken.fail(VESCOMM_ERROR_ABORTED, "a failure");
    broken.leave(Deadline::after(0));
    EXPECT_TRUE(broken.leave_ended());
}

TEST(Control, LacksServicesByDefault) {
    PlainControl control(true);
    std::vector<int> survivors;
    EXPECT_EQ(status_of([&] { control.subgroup("words", {1}, Deadline::after(0)); }),
              VESCOMM_ERROR_UNSUPPORTED);
    EXPECT_EQ(status_of([&] { control.shrink({}, Deadline::after(0), survivors); }),
              VESCOMM_ERROR_UNSUPPORTED);
    EXPECT_EQ(status_of([&] { control.descriptors(); }), VESCOMM_ERROR_UNSUPPORTED);
    const Membership membership = control.membership();
    EXPECT_EQ(membership.session, 0u);
    EXPECT_EQ(membership.processes, (std::vector<int>{0, 1, 2}));
}

}  // namespace
}  // namespace vescomm::internal
