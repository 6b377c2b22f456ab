// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/group_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "base/interrupt.h"

namespace vescomm::internal {

namespace {

// Time that the hub has to name the missing ranks after a deadline has passed.
constexpr auto max_verdict_time = std::chrono::seconds(2);
// The network's thread passes a failure on within microseconds once it runs.
constexpr auto max_flush_time = std::chrono::seconds(1);

// The group of all processes of a session of survivors.
GroupId shrunk(const Session::Origin &origin) {
    return derive_group(origin.group, "shrunk");
}

// If a rank dies before the new session has begun here, or before all have opened the group, the
// survivors meet again. Ranks that have completed the creation of a communicator meanwhile return
// from it, find it broken, shrink it, and come to the same meeting.
std::unique_ptr<Control> shrink_group(Session::Origin origin, const std::set<int> &failed,
                                      Deadline deadline, std::vector<int> &survivors) {
    const std::vector<int> before = origin.left;
    std::set<int> excluded;
    for (const int rank : failed) excluded.insert(before[static_cast<std::size_t>(rank)]);
    for (;;) {
        try {
            const auto session = Session::regroup(origin, excluded, deadline);
            origin = *session->origin();
            std::vector<int> everyone;
            for (int rank = 0; rank < session->ranks(); ++rank) everyone.push_back(rank);
            auto control = session->open(shrunk(origin), std::move(everyone),
                                         "communicator creation", deadline);
            survivors.clear();
            for (const int rank : origin.left)
                survivors.push_back(
                    static_cast<int>(std::ranges::find(before, rank) - before.begin()));
            return control;
        } catch (const Error &error) {
            if (error.status != VESCOMM_ERROR_PEER_FAILED || deadline.expired()) throw;
        }
    }
}

}  // namespace

struct GroupControl::FailureDelivery {
    std::mutex mutex;
    Listener listener;
    bool delivered = false;

    void deliver(const Failure &failure) {
        const std::lock_guard lock(mutex);
        if (delivered || !listener) return;
        delivered = true;
        listener(failure.status(), failure.why());
    }

    // The hub has been notified, or has reported the failure itself.
    void passed_on() {
        const std::lock_guard lock(flush_mutex);
        passed = true;
        flushed.notify_all();
    }
    void flush() {
        std::unique_lock lock(flush_mutex);
        flushed.wait_for(lock, max_flush_time, [this] { return passed; });
    }

    std::mutex flush_mutex;
    std::condition_variable flushed;
    bool passed = false;
};

GroupControl::GroupControl(std::shared_ptr<Session> session, std::shared_ptr<GroupState> state)
    : session_(std::move(session)),
      state_(std::move(state)),
      delivery_(std::make_shared<FailureDelivery>()) {
    // Runs in the thread that sets the first cause: the caller's, which holds the session, or the
    // network's.
    state_->failure.on_first(
        [weak = std::weak_ptr(state_), delivery = delivery_, session = session_.get()] {
            const auto group = weak.lock();
            if (!group) return;
            try {
                // Notifies the other ranks first: the program may end as soon as it observes the
                // failure, and the others would then only observe the end of this process.
                session->post([group, delivery](SessionCore &core) {
                    core.client().spread_failure(group);
                    delivery->passed_on();
                    delivery->deliver(group->failure);
                    group->wake();
                });
            } catch (const std::bad_alloc &) {
                // The network's thread finds the failure at its next tick.
                group->wake();
            }
        });
}

GroupControl::~GroupControl() {
    if (state_->failure.broken()) flush_failure();
    {
        const std::lock_guard lock(delivery_->mutex);
        delivery_->listener = nullptr;
    }
    state_->on_event({});
    try {
        session_->post([state = state_](SessionCore &core) { core.client().forget(state); });
    } catch (const std::bad_alloc &) {
        // The group ends with the session's connection.
    }
}

void GroupControl::wait_until_open(const std::string &label, Deadline deadline,
                                   const GroupState *parent) {
    const auto begin = Clock::now();
    LoopDeadline limit(deadline, begin);
    session_->post(
        [state = state_, label](SessionCore &core) { core.client().open(state, label); });
    for (;;) {
        const std::uint64_t seen = state_->reports();
        // If a failure came right after the opening, the caller's next call reports it.
        if (state_->opened()) return;
        check();
        if (parent != nullptr) parent->failure.check();
        limit.look(Clock::now());
        if (limit.expired()) {
            give_up(0, std::chrono::duration<double>(Clock::now() - begin).count(), label);
            check();
        }
        if (interrupted()) {
            fail(VESCOMM_ERROR_ABORTED,
                 fmt::format("rank {} was interrupted in {}", rank(), label));
            check();
        }
        state_->wait(seen, next_interrupt(limit.limit().moment()));
    }
}

// ---- the all-gather ----

void GroupControl::start_all_gather(std::string_view label, std::string_view bytes) {
    check();
    if (left_)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("rank {} has left the communicator and cannot do {} any more",
                                rank(), quote(label)));
    if (bytes.size() > max_gather_bytes) {
        // Fails the group, because the other ranks must not wait for this contribution.
        fail(VESCOMM_ERROR_INVALID_ARGUMENT,
             fmt::format("{} would gather {} bytes from rank {}; the control plane takes {} in all",
                         quote(label), bytes.size(), rank(), max_gather_bytes));
        check();
    }
    label_ = label;
    session_->post([state = state_, head = ContributionHead{sequence_ + 1, bytes.size(), label_},
                    copy = std::string(bytes)](SessionCore &core) {
        core.client().contribute(state, head, copy);
    });
    // After the allocations: a contribution that failed here is made again with the same number.
    ++sequence_;
}

std::optional<std::vector<std::string>> GroupControl::test_all_gather() {
    if (auto answer = state_->take_answer()) return answer;
    check();
    return std::nullopt;
}

void GroupControl::expire_all_gather(double waited_seconds) {
    give_up(sequence_, waited_seconds, quote(label_));
    check();
    throw Error(VESCOMM_ERROR_INTERNAL, "an all-gather ended without a result; please report this");
}

// Asks the hub which ranks are missing, and fails the group with or without its answer.
void GroupControl::give_up(std::uint64_t sequence, double waited_seconds, const std::string &what) {
    session_->post([state = state_, sequence, waited_seconds](SessionCore &core) {
        core.client().expire(state, sequence, waited_seconds);
    });
    const auto until = Clock::now() + max_verdict_time;
    while (!state_->failure.broken() && Clock::now() < until)
        state_->wait(state_->reports(),
                     std::min(until, Clock::now() + std::chrono::milliseconds(20)));
    if (!state_->failure.broken())
        fail(VESCOMM_ERROR_TIMEOUT, fmt::format("rank {} gave up {} after {:.1f} s, and rank 0 did "
                                                "not say which ranks are missing; "
                                                "see whether rank 0 is running",
                                                rank(), what, waited_seconds));
}

// ---- the end ----

void GroupControl::start_leave() {
    if (std::exchange(left_, true) || state_->failure.broken()) return;
    session_->post([state = state_](SessionCore &core) { core.client().leave(state); });
}

bool GroupControl::test_leave() {
    return state_->all_left() || state_->failure.broken();
}

void GroupControl::end_leave() noexcept {
    state_->indifferent = true;
}

// ---- failures ----

void GroupControl::check() {
    if (!state_->failure.broken()) return;
    delivery_->deliver(state_->failure);
    state_->failure.check();
}

void GroupControl::listen(Listener listener) {
    {
        const std::lock_guard lock(delivery_->mutex);
        delivery_->listener = std::move(listener);
    }
    if (state_->failure.broken()) delivery_->deliver(state_->failure);
}

void GroupControl::fail(vescomm_status_t status, const std::string &why) noexcept {
    state_->failure.set(status, why);
}

void GroupControl::flush_failure() noexcept {
    if (!session_->thread_->network().is_own_thread()) delivery_->flush();
}

bool GroupControl::send_note(int rank, std::string bytes) {
    session_->post([state = state_, rank, bytes = std::move(bytes)](SessionCore &core) {
        core.client().send_note(state, rank, bytes);
    });
    return true;
}

// ---- other communicators ----

std::unique_ptr<Control> GroupControl::subgroup(std::string_view words,
                                                const std::vector<int> &members,
                                                Deadline deadline) {
    std::vector<int> processes;
    for (const int member : members)
        processes.push_back(state_->members[static_cast<std::size_t>(member)]);
    return session_->open(derive_group(state_->id, words), std::move(processes),
                          "communicator creation", deadline, nullptr, state_.get());
}

Control::Shrink GroupControl::shrinking() const {
    Session::Origin origin;
    if (session_->origin() != nullptr && state_->id == shrunk(*session_->origin())) {
        origin = *session_->origin();
    } else {
        origin = {session_, state_->id, state_->members, state_->rank, {}};
        for (int rank = 0; rank < ranks(); ++rank) origin.left.push_back(rank);
    }
    return [origin](const std::set<int> &failed, Deadline deadline, std::vector<int> &survivors) {
        return shrink_group(origin, failed, deadline, survivors);
    };
}

// ---- for the transports ----

FrameKey GroupControl::derive_key(std::string_view purpose) const {
    return keyed_hash(session_->options_.secret, purpose);
}

std::string GroupControl::local_address() const {
    const std::lock_guard lock(session_->mutex_);
    return session_->host_;
}

Membership GroupControl::membership() const {
    return {session_->number_, state_->number(), state_->members};
}

}  // namespace vescomm::internal
