// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/acceptor.h"
#include "bootstrap/hub.h"
#include "bootstrap/hub_search.h"
#include "bootstrap/session_client.h"

namespace vescomm {

struct SessionOptions {
    int rank = 0;
    int ranks = 1;
    // Where the hub listens: rank 0 on the first, the others try all. Ignored for one rank.
    std::vector<TcpAddress> addresses;
    // Not empty, the same on every rank. Ignored for one rank.
    std::string secret;
    // Rank 0: a TCP socket that listens already, used instead of `addresses`. Borrowed: a copy is
    // taken, and the original may serve the next session.
    int listen_descriptor = -1;
    // An idle connection carries a sign of life this often.
    double heartbeat_seconds = 1.0;
    // A process that is silent for longer is lost. Ten heartbeats: enough for a process that is
    // stopped for a moment or a machine that swaps. Time in which this process itself stood still
    // does not count.
    double silence_seconds = 10.0;
    // After processes failed to meet, rank 0 stays this long to tell the others why, unless all
    // know.
    double linger_seconds = 3.0;
    // Version and build of the library; all ranks must have the same.
    std::string build;
};

// A process that takes part in a session: connections and timers, all in the network's thread.
// session.h wraps it for callers that wait; the tests run many of them over a simulated network.
class SessionCore {
public:
    // A process that survives with others, and waits for this one to regroup; see regroup.h.
    struct Survivor {
        Claim claim;  // with its rank in that group
        std::unique_ptr<Link> link;
    };

    // `changed`: called when the session has started, failed, or is deserted.
    SessionCore(Network &network, SessionOptions options, std::function<void()> changed);
    ~SessionCore();

    // Begins to meet: listens, or looks for the hub. Throws Error.
    void begin();
    // The same where survivors have met already, and each knows its rank: the hub takes their
    // connections, the others have one to it.
    void set_rank(int rank, int ranks);
    void begin_hub(std::vector<Survivor> survivors, const std::string &welcome);
    void begin_client(HubSearch::Found found);

    bool started() const { return client_->started(); }
    std::optional<Error> failure() const;
    // The caller has waited in vain for all processes to meet.
    void expire(double waited_seconds);
    // Why the hub has not been found so far, for a sentence.
    std::string trouble() const { return search_ ? search_->trouble() : std::string(); }

    // Once it has begun.
    SessionClient &client() { return *client_; }
    bool begun() const { return client_ != nullptr; }
    const SessionOptions &options() const { return options_; }
    // The numeric address of the interface on which the others reach this process; empty: there are
    // none.
    std::string host() const;

    // This process has no group any more: says so and lets connections end. The hub serves the
    // others until they are gone.
    void finish();
    // Nothing is left to be sent or served.
    bool deserted() const;
    bool everyone_told() const { return hub_ == nullptr || hub_->everyone_told(); }

    // Listens for survivors on an interface, and returns where.
    TcpAddress listen_for_survivors(const std::string &host);
    // Survivors that wait for this process.
    std::list<Survivor> &survivors() { return survivors_; }
    // Called when one has come or gone.
    void on_survivor(std::function<void()> call) { survivor_changed_ = std::move(call); }

private:
    void make_hub();
    void make_client();
    void admit(Acceptor::Joined joined);
    void wait_here(Acceptor::Joined joined);
    void connected(HubSearch::Found found);
    void search_again();
    void tick();
    void look_after_hub(Clock::duration stalled);
    void schedule(Clock::duration in);
    void fail(const Error &error);

    Network &network_;
    SessionOptions options_;
    std::function<void()> changed_;
    const Clock::duration heartbeat_;
    const Clock::duration silence_;
    Acceptor acceptor_;  // the hub's, until every process has joined
    Acceptor survivor_acceptor_;
    std::unique_ptr<Hub> hub_;
    std::unique_ptr<HubSearch> search_;
    std::unique_ptr<Timer> search_timer_;
    std::unique_ptr<Link> link_;  // to the hub
    std::string hub_address_;
    std::unique_ptr<SessionClient> client_;
    std::list<Survivor> survivors_;
    std::function<void()> survivor_changed_;
    std::unique_ptr<Timer> timer_;
    Clock::time_point expected_tick_{};
    bool finishing_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace vescomm
