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
#include "bootstrap/hub_connection.h"
#include "bootstrap/session_client.h"
#include "bootstrap/waiting_survivors.h"

namespace vescomm::internal {

struct SessionOptions {
    int rank = 0;
    int ranks = 1;
    // Addresses of the hub: rank 0 listens on the first, the others try all. Ignored for one rank.
    std::vector<TcpAddress> addresses;
    // Must not be empty, and must be equal on every rank. Ignored for one rank.
    std::string secret;
    // Rank 0: a listening TCP socket that is used instead of `addresses`; -1: none. Borrowed: the
    // session uses a copy, and the original may serve the next session.
    int listen_descriptor = -1;
    // Interval of heartbeats on an idle connection.
    double heartbeat_seconds = 1.0;
    // A process that is silent for longer is considered dead. The default of ten heartbeats
    // tolerates a process that is stopped for a moment and a machine that swaps. Time in which this
    // process itself did not run does not count.
    double silence_seconds = 10.0;
    // After a failure to meet, rank 0 stays alive for this time to notify the others of the reason.
    // It ends earlier once all have been notified.
    double linger_seconds = 3.0;
    // Version and build of the library; must be equal on all ranks.
    std::string build;
};

// One process of a session: connections and timers, all in the network's thread. session.h wraps it
// for threads that wait; the tests run many of them over a simulated network.
class SessionCore {
public:
    using Survivor = WaitingSurvivors::Survivor;

    // `changed` is called when the session has started, failed, or is deserted.
    SessionCore(Network &network, SessionOptions options, std::function<void()> changed);
    ~SessionCore();

    // Starts meeting: listens, or searches for the hub. Throws Error.
    void begin();
    // Alternative to begin() for survivors that have met and know their ranks: the hub takes over
    // the connections to the others, each other process its connection to the hub.
    void set_rank(int rank, int ranks);
    void begin_hub(std::vector<Survivor> survivors, const std::string &welcome);
    void begin_client(HubSearch::Found found);

    bool started() const { return client_->started(); }
    std::optional<Error> failure() const;
    // Ends the session on all processes, because this one cannot go on. Once begun().
    void fail(vescomm_status_t status, const std::string &why);
    // The caller's deadline has passed before all processes had joined.
    void expire(double waited_seconds);
    // Reason why the hub has not been found so far, for a sentence.
    std::string trouble() const { return hub_connection_.trouble(); }

    // Valid once begun().
    SessionClient &client() { return *client_; }
    bool begun() const { return client_ != nullptr; }
    const SessionOptions &options() const { return options_; }
    // The numeric address of the interface on which the other processes reach this one; empty if
    // there are none.
    std::string host() const;

    // Called when this process has no group any more: says so and closes connections after all
    // bytes are sent. The hub serves the other processes until they are gone.
    void finish();
    // Nothing is left to send or to serve.
    bool deserted() const;
    bool everyone_notified() const { return hub_ == nullptr || hub_->everyone_notified(); }

    // Listens for survivors on an interface.
    SurvivorListener listen_for_survivors(const std::string &host) {
        return survivors_.listen(host);
    }
    // Survivors that wait for this process.
    std::list<Survivor> &survivors() { return survivors_.all(); }
    // Sets a function that is called when a survivor has come or gone.
    void on_survivor(std::function<void()> call) { survivors_.on_change(std::move(call)); }

private:
    // The interface on which this process listens for survivors, by its connection to rank 0.
    std::string interface_of(const Stream &stream) const;
    void make_hub();
    void make_client();
    void admit(Acceptor::Joined joined);
    void tick();
    void schedule_tick();

    Network &network_;
    SessionOptions options_;
    std::function<void()> changed_;
    const Clock::duration heartbeat_;
    const Clock::duration silence_;
    Acceptor acceptor_;  // for the hub, until every process has joined
    WaitingSurvivors survivors_;
    std::unique_ptr<Hub> hub_;  // rank 0
    HubConnection hub_connection_;  // the others
    std::unique_ptr<SessionClient> client_;
    std::unique_ptr<Timer> timer_;
    Clock::time_point expected_tick_{};
    bool finishing_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace vescomm::internal
