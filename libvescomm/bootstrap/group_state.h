// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/failure.h"
#include "bootstrap/group_id.h"

namespace vescomm::internal {

// Notes of other ranks that wait to be taken.
//
// Threads: safe.
class WaitingNotes {
public:
    // Returns false if too many wait already: a rank that computes for long takes none.
    bool put(int from, std::string bytes);
    // Ordered by arrival, with the rank.
    std::vector<std::pair<int, std::string>> take();
    bool any() const noexcept { return any_.load(std::memory_order_relaxed); }

private:
    std::mutex mutex_;
    std::vector<std::pair<int, std::string>> notes_;
    std::atomic<bool> any_{false};
};

// A group as the caller of one of its processes sees it. The network's thread reports what the hub
// sends (SessionClient), and the caller's thread waits for it.
//
// Threads: safe.
class GroupState {
public:
    GroupState(const GroupId &id, int rank, std::vector<int> members)
        : id(id), rank(rank), members(std::move(members)), left_(this->members.size()) {}

    const GroupId id;
    const int rank;  // of this process, in the group
    const std::vector<int> members;  // by rank: the session ranks
    int ranks() const { return static_cast<int>(members.size()); }

    Failure failure;
    // The caller has left: nothing is reported to it any more.
    std::atomic<bool> indifferent{false};

    // ---- reports; each wakes the waiting thread ----

    void report_opened(std::uint32_t number);
    void report_answer(std::vector<std::string> contributions);
    void report_left(int rank);
    void report_all_left();
    // Drops the note if too many have not been taken.
    void report_note(int rank, std::string bytes);
    // The failure was set, or something else changed that a waiter must check.
    void wake();

    // ---- the caller ----

    bool opened() const;
    // Number of the group, unique in the session, assigned by the hub. Valid once the group is
    // open.
    std::uint32_t number() const;
    bool all_left() const;
    bool has_left(int rank) const;
    bool any_has_left() const;
    std::optional<std::vector<std::string>> take_answer();
    std::vector<std::pair<int, std::string>> take_notes() { return notes_.take(); }
    bool has_notes() const noexcept { return notes_.any(); }
    // wait() returns when reports() differs from `seen`, at the latest at `until`.
    std::uint64_t reports() const;
    void wait(std::uint64_t seen, Clock::time_point until) const;
    // Sets a function that is called after every report, in the reporting thread.
    void on_event(std::function<void()> call);

private:
    void changed(std::unique_lock<std::mutex> lock);

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::uint64_t reports_ = 0;
    std::optional<std::uint32_t> number_;  // set once the group is open
    bool all_left_ = false;
    std::vector<bool> left_;
    std::optional<std::vector<std::string>> answer_;
    WaitingNotes notes_;
    std::mutex call_mutex_;  // held while on_event's function runs
    std::function<void()> call_;
};

}  // namespace vescomm::internal
