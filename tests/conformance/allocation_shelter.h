// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Wrappers of the control plane and the loopback transport whose allocations do not fail, for
// allocations_test.cc.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/control.h"
#include "support/failing_allocations.h"
#include "transport/transport.h"

namespace vescomm::internal::testing_support {

// A control plane whose own allocations succeed. Those in callbacks into the library may fail.
class Sheltered final : public Control {
public:
    explicit Sheltered(std::unique_ptr<Control> inner) : inner_(std::move(inner)) {}
    ~Sheltered() override {
        const WithoutFailing shelter;
        inner_.reset();
    }
    int rank() const override { return inner_->rank(); }
    int ranks() const override { return inner_->ranks(); }
    void start_all_gather(std::string_view label, std::string_view bytes) override {
        const WithoutFailing shelter;
        inner_->start_all_gather(label, bytes);
    }
    std::optional<std::vector<std::string>> test_all_gather() override {
        const WithoutFailing shelter;
        return inner_->test_all_gather();
    }
    [[noreturn]] void expire_all_gather(double waited_seconds) override {
        const WithoutFailing shelter;
        inner_->expire_all_gather(waited_seconds);
        std::abort();
    }
    void on_event(std::function<void()> call) override {
        const WithoutFailing shelter;
        inner_->on_event(std::move(call));
    }
    void wait_event(std::uint64_t seen, Clock::time_point until) override {
        inner_->wait_event(seen, until);
    }
    std::uint64_t events() const override { return inner_->events(); }
    FrameKey derive_key(std::string_view purpose) const override {
        const WithoutFailing shelter;
        return inner_->derive_key(purpose);
    }
    std::string local_address() const override {
        const WithoutFailing shelter;
        return inner_->local_address();
    }
    Membership membership() const override {
        const WithoutFailing shelter;
        return inner_->membership();
    }
    DescriptorExchange &descriptors() override { return inner_->descriptors(); }
    void listen(Listener listener) override {
        const WithoutFailing shelter;
        inner_->listen([listener](vescomm_status_t status, const std::string &why) {
            const FailingAgain again;
            listener(status, why);
        });
    }
    void fail(vescomm_status_t status, const std::string &why) noexcept override {
        const WithoutFailing shelter;
        inner_->fail(status, why);
    }
    void start_leave() override {
        const WithoutFailing shelter;
        inner_->start_leave();
    }
    bool test_leave() override {
        const WithoutFailing shelter;
        return inner_->test_leave();
    }
    void end_leave() noexcept override { inner_->end_leave(); }
    bool has_left(int rank) const override { return inner_->has_left(rank); }
    bool any_has_left() const override { return inner_->any_has_left(); }

private:
    std::unique_ptr<Control> inner_;
};

// Loopback exists only for tests: its queues grow, so its allocations must succeed.
class ShelteredTransport final : public Transport {
public:
    explicit ShelteredTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

    std::string_view name() const override { return inner_->name(); }
    bool maps(int peer) const noexcept override { return inner_->maps(peer); }
    bool puts(int peer) const noexcept override { return inner_->puts(peer); }
    bool supports(vescomm_memory_kind_t kind) const noexcept override {
        return inner_->supports(kind);
    }
    std::string share(std::uint64_t bytes, vescomm_sharing_t sharing,
                      std::uint64_t reserved) override {
        const WithoutFailing shelter;
        return inner_->share(bytes, sharing, reserved);
    }
    std::shared_ptr<Mapping> map(std::uint64_t bytes, vescomm_sharing_t sharing,
                                 const std::vector<std::string> &shared,
                                 Deadline deadline) override {
        const WithoutFailing shelter;
        return inner_->map(bytes, sharing, shared, deadline);
    }
    std::string offer(MemoryId memory, std::byte *base, std::uint64_t bytes) override {
        const WithoutFailing shelter;
        return inner_->offer(memory, base, bytes);
    }
    void forget(MemoryId memory) noexcept override {
        const WithoutFailing shelter;
        inner_->forget(memory);
    }
    void put(const Put &put) noexcept override {
        const WithoutFailing shelter;
        inner_->put(put);
    }
    void signal(int peer, SignalName signal, std::uint64_t value) noexcept override {
        const WithoutFailing shelter;
        inner_->signal(peer, signal, value);
    }
    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        return inner_->signalled(peer, signal);
    }
    bool progress() noexcept override {
        const WithoutFailing shelter;
        return inner_->progress();
    }
    SignalBoard *board() noexcept override { return inner_->board(); }
    void stop() noexcept override {
        const WithoutFailing shelter;
        inner_->stop();
    }

private:
    std::unique_ptr<Transport> inner_;
};

}  // namespace vescomm::internal::testing_support
