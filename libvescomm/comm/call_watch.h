// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "execute/match/recent_calls.h"

namespace vescomm::internal {

// Decides when a rank that waits compares calls, and compares its earlier calls with those that
// ranks of other nodes advertise.
//
// Threads: the caller holds the lock of the progress engine, but for due_after_test().
class CallWatch {
public:
    // The calls of `rank` that use a staging buffer, and the channels of its slots. `nodes`
    // outlives this object.
    void watch(std::shared_ptr<const RecentCalls> calls, std::uint32_t first_channel, int rank,
               const Nodes &nodes, std::vector<Transport *> transports) {
        calls_ = std::move(calls);
        first_channel_ = first_channel;
        rank_ = rank;
        nodes_ = &nodes;
        transports_ = std::move(transports);
    }

    // True at most once in `interval`.
    bool due(Clock::duration interval) noexcept {
        const auto now = Clock::now();
        if (now - compared_ < interval) return false;
        compared_ = now;
        return true;
    }

    // A program that only tests, and never waits, compares as well: true for one in many tests.
    // Without the lock.
    bool due_after_test() noexcept {
        return (tests_.fetch_add(1, std::memory_order_relaxed) + 1) % tests_between_comparisons ==
               0;
    }

    std::optional<Mismatch> find_mismatch() const noexcept {
        if (!calls_) return {};
        return calls_->find_mismatch(rank_, *nodes_, first_channel_, transports_);
    }

private:
    static constexpr std::uint64_t tests_between_comparisons = 1024;

    std::shared_ptr<const RecentCalls> calls_;
    std::uint32_t first_channel_ = 0;
    int rank_ = 0;
    const Nodes *nodes_ = nullptr;  // set together with calls_
    std::vector<Transport *> transports_;  // by peer
    std::atomic<std::uint64_t> tests_{0};  // that found an operation under way
    Clock::time_point compared_{};
};

}  // namespace vescomm::internal
