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

std::shared_ptr<Session> Session::regroup(const GroupId &group, const std::vector<int> &members,
                                          int rank, const std::set<int> &failed, Deadline deadline,
                                          std::vector<int> &survivors) {
    const auto begin = Clock::now();
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
    const std::shared_ptr<Session> made(new Session(thread_, options_));
    // Called at once: a connection changes its owner without losing a byte.
    const auto begin_session = [&](Regroup::Result result) {
        made->options_.ranks = static_cast<int>(result.survivors.size());
        made->options_.rank =
            static_cast<int>(std::ranges::find(result.survivors, rank) - result.survivors.begin());
        made->core_->set_rank(made->options_.rank, made->options_.ranks);
        if (result.leader) made->core_->begin_client(std::move(*result.leader));
        else made->core_->begin_hub(std::move(result.followers), result.welcome);
        report([&] { shared.survivors = std::move(result.survivors); });
    };
    std::unique_ptr<Regroup> regroup;  // the network's thread only
    OsNetwork &network = thread_->network();
    network.run([&] {
        made->make_core();
        std::vector<TcpAddress> addresses;
        std::set<int> gone;
        for (std::size_t member = 0; member < members.size(); ++member) {
            const SessionClient &client = core_->client();
            const std::string &text = client.listens(members[member]);
            addresses.push_back(text.empty() ? TcpAddress{}
                                             : parse_tcp_address(text, "where a rank listens"));
            if (!client.absence(members[member]).empty()) gone.insert(static_cast<int>(member));
        }
        regroup = std::make_unique<Regroup>(
            network, *core_, group, rank, std::move(addresses), std::move(gone), failed,
            Regroup::Events{begin_session,
                            [&](const Error &error) { report([&] { shared.error = error; }); },
                            [&](const TcpAddress &local) {
                                return made->core_->listen_for_survivors(local.host).port;
                            }});
        regroup->begin();
    });
    const auto over = [&] { return !shared.survivors.empty() || shared.error; };
    {
        std::unique_lock lock(shared.mutex);
        while (!shared.changed.wait_until(lock, next_interrupt(deadline.moment()), over) &&
               !deadline.expired()) {
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
    survivors = shared.survivors;
    made->wait_until_met(deadline);
    return made;
}

}  // namespace vescomm::internal
