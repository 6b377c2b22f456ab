// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The control plane of a communicator of one rank.
#include "base/failure.h"
#include "bootstrap/session.h"

namespace vescomm::internal {

namespace {

class LoneControl final : public Control {
public:
    int rank() const override { return 0; }
    int ranks() const override { return 1; }

    void start_all_gather(std::string_view, std::string_view bytes) override {
        failure_.check();
        answer_ = std::string(bytes);
    }
    std::optional<std::vector<std::string>> test_all_gather() override {
        failure_.check();
        return std::vector{answer_};
    }
    [[noreturn]] void expire_all_gather(double) override {
        throw Error(VESCOMM_ERROR_INTERNAL, "one rank waits for nobody; please report this");
    }

    void start_leave() override {}
    bool test_leave() override { return true; }
    void end_leave() noexcept override {}
    bool has_left(int) const override { return false; }
    bool any_has_left() const override { return false; }

    void on_event(std::function<void()>) override {}
    void wait_event(std::uint64_t, Clock::time_point) override {}
    std::uint64_t events() const override { return 0; }

    void listen(Listener listener) override {
        failure_.on_first([this, listener = std::move(listener)] {
            if (listener) listener(failure_.status(), failure_.why());
        });
    }
    void fail(vescomm_status_t status, const std::string &why) noexcept override {
        failure_.set(status, why);
    }

    std::unique_ptr<Control> subgroup(std::string_view, const std::vector<int> &,
                                      Deadline) override {
        failure_.check();
        return make_lone_control();
    }
    Shrink shrinking() const override {
        return [](const std::set<int> &, Deadline, std::vector<int> &survivors) {
            survivors = {0};
            return make_lone_control();
        };
    }

    FrameKey derive_key(std::string_view purpose) const override { return keyed_hash("", purpose); }
    std::string local_address() const override { return {}; }
    DescriptorExchange &descriptors() override {
        throw Error(VESCOMM_ERROR_INTERNAL, "one rank shares descriptors with nobody");
    }

private:
    Failure failure_;
    std::string answer_;
};

}  // namespace

std::unique_ptr<Control> make_lone_control() {
    return std::make_unique<LoneControl>();
}

}  // namespace vescomm::internal
