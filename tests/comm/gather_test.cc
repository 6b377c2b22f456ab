// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The result of an all-gather and the failure of the communicator arrive together: a rank that got
// the result, and found an error in it, breaks the communicator before this rank has looked.
#include <cstdlib>
#include <utility>

#include "support/thread_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::Kind;
using testing_support::LocalControl;
using testing_support::LocalControlHub;
using testing_support::TestSetup;

// Holds back the result of the next all-gather. It becomes available in look number `looks`,
// together with a failure, unless `lost`.
class LateControl final : public Control {
public:
    LateControl(std::unique_ptr<Control> inner, int &looks, const bool &lost)
        : inner_(std::move(inner)), looks_(looks), lost_(lost) {}

    std::optional<std::vector<std::string>> test_all_gather() override {
        if (looks_ > 0) {
            if (--looks_ == 0) listener_(VESCOMM_ERROR_ABORTED, "another rank found an error");
            return std::nullopt;
        }
        if (lost_) throw Error(VESCOMM_ERROR_ABORTED, "another rank found an error");
        return inner_->test_all_gather();
    }
    void listen(Listener listener) override {
        listener_ = listener;
        inner_->listen(std::move(listener));
    }

    int rank() const override { return inner_->rank(); }
    int ranks() const override { return inner_->ranks(); }
    void start_all_gather(std::string_view label, std::string_view bytes) override {
        inner_->start_all_gather(label, bytes);
    }
    [[noreturn]] void expire_all_gather(double waited) override {
        inner_->expire_all_gather(waited);
        std::abort();
    }
    void start_leave() override { inner_->start_leave(); }
    bool test_leave() override { return inner_->test_leave(); }
    void end_leave() noexcept override { inner_->end_leave(); }
    bool has_left(int rank) const override { return inner_->has_left(rank); }
    bool any_has_left() const override { return inner_->any_has_left(); }
    void on_event(std::function<void()> call) override { inner_->on_event(std::move(call)); }
    void wait_event(std::uint64_t seen, Clock::time_point until) override {
        inner_->wait_event(seen, until);
    }
    std::uint64_t events() const override { return inner_->events(); }
    void fail(vescomm_status_t status, const std::string &why) noexcept override {
        inner_->fail(status, why);
    }
    FrameKey derive_key(std::string_view purpose) const override {
        return inner_->derive_key(purpose);
    }
    std::string local_address() const override { return inner_->local_address(); }
    DescriptorExchange &descriptors() override { return inner_->descriptors(); }

private:
    std::unique_ptr<Control> inner_;
    int &looks_;
    const bool &lost_;
    Listener listener_;
};

class LateResult : public testing::TestWithParam<int> {
protected:
    // Gathers while the failure arrives in the given look.
    std::vector<std::string> gather(bool lost) {
        int looks = 0;
        const TestSetup setup{Kind::loopback, {0}};
        const auto hub = std::make_shared<LocalControlHub>(1);
        const auto comm = testing_support::join(
            setup, 0,
            std::make_unique<LateControl>(std::make_unique<LocalControl>(hub, 0), looks, lost),
            make_loopback_network(Nodes::from_numbers(setup.node_of)));
        looks = GetParam();
        return comm->gather("a test", "bytes", comm->deadline());
    }
};

TEST_P(LateResult, IsReturnedInSpiteOfTheFailure) {
    EXPECT_EQ(gather(false), std::vector<std::string>{"bytes"});
}

TEST_P(LateResult, IsNotAwaitedIfThereIsNone) {
    bool lost = true;
    try {
        gather(lost);
        FAIL() << "no error";
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_ABORTED);
    }
}

INSTANTIATE_TEST_SUITE_P(Looks, LateResult, testing::Values(1, 2, 3, 4, 101, 102, 2'000, 2'001));

}  // namespace
}  // namespace vescomm::internal
