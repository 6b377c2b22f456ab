// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A session of the survivors of another one.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "bootstrap/regroup.h"
#include "bootstrap/session.h"

namespace vescomm::internal {

std::shared_ptr<Session> Session::regroup(Origin origin, const std::set<int> &failed,
                                          Deadline &deadline) {
    const auto begin = Clock::now();
    std::set<int> excluded = failed;
    for (std::size_t member = 0; member < origin.members.size(); ++member)
        if (!std::ranges::binary_search(origin.left, static_cast<int>(member)))
            excluded.insert(static_cast<int>(member));
    Session &from = *origin.session;
    const int rank = origin.rank;
    struct Shared {
        std::mutex mutex;
        std::condition_variable changed;
        std::vector<int> survivors;
        std::optional<Error> error;
    };
    Shared shared;
    const auto report = [&shared](auto &&set) {
        const std::lock_guard lock(shared.mutex);
        set();
        shared.changed.notify_all();
    };
    const std::shared_ptr<Session> made(new Session(from.thread_, from.options_));
    // Called at once: a connection changes its owner without losing a byte.
    const auto begin_session = [&](Regroup::Result result) {
        made->options_.ranks = static_cast<int>(result.survivors.size());
        made->options_.linger_seconds = 0;  // every survivor is connected
        made->options_.rank =
            static_cast<int>(std::ranges::find(result.survivors, rank) - result.survivors.begin());
        made->core_->set_rank(made->options_.rank, made->options_.ranks);
        if (result.leader) made->core_->begin_client(std::move(*result.leader));
        else made->core_->begin_hub(std::move(result.followers), result.welcome);
        report([&] { shared.survivors = std::move(result.survivors); });
    };
    std::unique_ptr<Regroup> regroup;  // the network's thread only
    OsNetwork &network = from.thread_->network();
    network.run([&] {
        made->make_core();
        std::vector<SurvivorListener> listeners;
        std::set<int> gone;
        for (const int process : origin.members) {
            const SessionClient &client = from.core_->client();
            const std::string &text = client.listens(process);
            const int member = static_cast<int>(listeners.size());
            listeners.push_back({.address = text.empty()
                                                ? TcpAddress()
                                                : parse_tcp_address(text, "where a rank listens"),
                                 .number = client.listener(process)});
            if (client.gone(process)) gone.insert(member);
        }
        regroup = std::make_unique<Regroup>(
            network, *from.core_, origin.group, rank, listeners, std::move(gone),
            std::move(excluded),
            Regroup::Events{
                begin_session, [&](const Error &error) { report([&] { shared.error = error; }); },
                [&](const Stream &stream) {
                    return made->core_->listen_for_survivors(stream.local().host);
                },
                [&](int member) {
                    const int process = origin.members[static_cast<std::size_t>(member)];
                    return !from.core_->client().absence(process).empty();
                }});
        regroup->begin();
    });
    const auto over = [&] { return !shared.survivors.empty() || shared.error; };
    LoopDeadline limit(deadline, Clock::now());
    const auto expired = [&] {
        limit.look(Clock::now());
        deadline = limit.limit();
        return limit.expired();
    };
    {
        std::unique_lock lock(shared.mutex);
        while (!shared.changed.wait_until(lock, next_interrupt(deadline.moment()), over) &&
               !expired()) {
            lock.unlock();
            const bool end = interrupted();
            lock.lock();
            if (end && !over())
                shared.error.emplace(
                    VESCOMM_ERROR_ABORTED,
                    "rank " + std::to_string(rank) + " was interrupted in vescomm_comm_shrink()");
        }
    }
    network.run([&] {
        const std::lock_guard lock(shared.mutex);
        const std::chrono::duration<double> waited = Clock::now() - begin;
        if (!over()) shared.error.emplace(VESCOMM_ERROR_TIMEOUT, regroup->expire(waited.count()));
        regroup.reset();
    });
    if (shared.error) throw Error(*shared.error);
    origin.left = std::move(shared.survivors);
    made->origin_ = std::move(origin);
    try {
        made->wait_until_met(deadline, Clock::now());
    } catch (const Error &) {
        // A session that began before it failed counts: its members meet again as members of it.
        bool began = false;
        network.run([&] { began = made->core_->started(); });
        if (!began) throw;
    }
    return made;
}

}  // namespace vescomm::internal
