// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.h"
#include "bootstrap/control.h"
#include "bootstrap/event_loop.h"
#include "bootstrap/gathering.h"
#include "bootstrap/tcp_control.h"

namespace vescomm {

// What rank 0 and the others have in common: the caller's side of each operation, which hands work
// to the background thread and waits for news of it.
//
//     caller's thread               background thread
//     start_all_gather() ────────►  contribute()  …  gathered()
//     fail()             ────────►  spread_failure(), the listener
//     start_leave()      ────────►  say_goodbye()  …  everyone_left()
class TcpMember : public Control {
public:
    int rank() const final { return rank_; }
    int ranks() const final { return ranks_; }
    void start_all_gather(std::string_view label, std::string_view bytes) final;
    std::optional<std::vector<std::string>> test_all_gather() final;
    [[noreturn]] void expire_all_gather(double waited_seconds) final;
    void on_event(std::function<void()> wake) final;
    void listen(Listener listener) final;
    void fail(vescomm_status_t status, const std::string &why) noexcept final;
    void start_leave() final;
    bool test_leave() final;
    void end_leave() noexcept final { left_ = true; }
    bool has_left(int rank) const final { return gone_[static_cast<std::size_t>(rank)]; }
    FrameKey derive_key(std::string_view purpose) const final;
    std::string local_address() const final;

    // Returns once every rank is here; throws the reason why not.
    virtual void meet(Deadline deadline);

protected:
    explicit TcpMember(const TcpControlOptions &options);

    // --- for the derived class, in the background thread ---

    // Every rank is here. / The answer to the all-gather under way. / No more is awaited.
    void everyone_met();
    void gathered(std::vector<std::string> contributions);
    void everyone_left();
    // That rank has said goodbye.
    void rank_left(int rank);
    // As fail(), unless this rank has left in good order and needs no news any more.
    void lose(vescomm_status_t status, const std::string &why) noexcept;

    // --- what the derived class does, in the background thread ---

    virtual void contribute(ContributionHead head, std::string bytes) = 0;
    // The caller has waited in vain for this all-gather, or (0) for all ranks to meet.
    virtual void expire(std::uint64_t sequence, double waited_seconds) = 0;
    virtual void say_goodbye() = 0;
    virtual void spread_failure(vescomm_status_t status, const std::string &why) = 0;
    // Sends signs of life and looks for silent peers. `stalled` is how much too late it is called.
    virtual void look_after_peers(Clock::time_point now, Clock::duration stalled) = 0;
    // Lets links end once everything is sent; true when all have.
    virtual bool finish_links() = 0;

    // A connection of the control plane has been made: its interface reaches other ranks.
    void note_interface(int socket);

    // Both to be called by the derived class: the thread must end before its members do.
    void start_thread();
    void end_thread() noexcept;

    Clock::duration heartbeat() const { return heartbeat_; }
    Clock::duration silence() const { return silence_; }

    const int rank_;
    const int ranks_;
    const std::string secret_;
    EventLoop loop_;
    Failure failure_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;

private:
    void sleep_until_event(Deadline deadline) final;
    void tell_event();
    void on_failure() noexcept;
    void deliver_failure();
    // Throws the failure, which the listener then knows of.
    void check();
    void give_up(std::uint64_t sequence, double waited_seconds, std::string_view what);
    void tick();

    const Clock::duration heartbeat_;
    const Clock::duration silence_;
    Clock::time_point last_tick_;  // background thread only

    // Guarded by mutex_.
    std::string local_address_;
    bool met_ = false;
    bool all_left_ = false;
    std::optional<std::vector<std::string>> answer_;
    std::function<void()> wake_;

    std::vector<std::atomic<bool>> gone_;  // by rank: it has said goodbye
    std::atomic<bool> answered_{false};  // answer_ has a value

    std::mutex delivery_;
    Listener listener_;
    bool delivered_ = false;

    std::atomic<bool> left_{false};
    // The caller's thread only.
    bool leaving_ = false;
    std::uint64_t sequence_ = 0;
    std::string label_;  // of the all-gather under way
    bool running_ = false;  // the owner's thread only
};

}  // namespace vescomm
