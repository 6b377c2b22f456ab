// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "bootstrap/group_control.h"
#include "bootstrap/session_registry.h"

namespace vescomm::internal {

namespace {

// Time for a process that ends its session to send its last frames, and for the others to end
// theirs.
constexpr auto max_farewell_time = std::chrono::milliseconds(250);
// Interval at which a process checks whether its session is deserted.
constexpr auto farewell_period = std::chrono::milliseconds(1);

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

void check(const SessionOptions &options) {
    const auto wrong = [](const std::string &text) {
        return Error(VESCOMM_ERROR_INVALID_ARGUMENT, text);
    };
    if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks)
        throw wrong(fmt::format("rank {} of {} does not exist; ranks count from 0", options.rank,
                                options.ranks));
    if (options.secret.empty())
        throw wrong(
            fmt::format("rank {} of {} has no secret; give all ranks the same one, such as "
                        "32 random bytes",
                        options.rank, options.ranks));
    if (options.addresses.empty() && (options.rank != 0 || options.listen_descriptor < 0))
        throw wrong(fmt::format("rank {} of {} has no address of rank 0; give one as \"host:port\"",
                                options.rank, options.ranks));
    for (const TcpAddress &address : options.addresses)
        if (address.port == 0 && options.listen_descriptor < 0)
            throw wrong(fmt::format("{} has no port", to_text(address)));
    if (!(options.heartbeat_seconds > 0 && options.silence_seconds > options.heartbeat_seconds))
        throw wrong(
            fmt::format("a heartbeat every {} s cannot show a silence of {} s; the silence "
                        "must be the longer of the two",
                        options.heartbeat_seconds, options.silence_seconds));
}

// ---- the sessions of this process ----

// Never destroyed: threads may free their communicators until the process ends.
SessionRegistry<Session> &registry() {
    static auto &only = *new SessionRegistry<Session>;
    return only;
}

std::string key_of(const SessionOptions &options) {
    std::string key = fmt::format("{}/{}", options.rank, options.ranks);
    for (const TcpAddress &address : options.addresses) key += " " + to_text(address);
    return key + " " + options.secret;
}

}  // namespace

// ---- meeting ----

std::atomic<std::uint64_t> Session::made_{0};

Session::Session(std::shared_ptr<ControlThread> thread, const SessionOptions &options)
    : thread_(std::move(thread)), options_(options), descriptors_(thread_->network()) {}

void Session::changed() {
    const std::lock_guard lock(mutex_);
    ++changes_;
    changed_.notify_all();
}

void Session::post(std::function<void(SessionCore &)> function) {
    thread_->network().post(
        [core = core_.get(), alive = std::weak_ptr(alive_), function = std::move(function)] {
            if (!alive.expired()) function(*core);
        });
}

// Runs in the network's thread. The core may outlive the session, as a hub that serves others.
void Session::make_core() {
    core_ = std::make_unique<SessionCore>(thread_->network(), options_,
                                          [this, alive = std::weak_ptr(alive_)] {
                                              if (!alive.expired()) changed();
                                          });
    thread_->add(core_.get());
}

std::shared_ptr<Session> Session::meet(const SessionOptions &options, Deadline &deadline,
                                       Creation &creation) {
    check(options);
    const auto begin = Clock::now();
    const std::string key = key_of(options);
    const auto found = registry().find_or_begin(
        key, deadline,
        [&](const auto &session) { return creation.begin(session, session->intact()); },
        [&](const auto &session) { creation.begin(session, true); });
    if (!found && !deadline.expired())
        throw Error(VESCOMM_ERROR_ABORTED,
                    fmt::format("rank {} was interrupted while another of its threads met the "
                                "other ranks",
                                options.rank));
    if (!found)
        throw Error(VESCOMM_ERROR_TIMEOUT,
                    fmt::format("another thread of rank {} has not met the other ranks in time; "
                                "see whether all processes started",
                                options.rank));
    if (*found) return *found;
    std::shared_ptr<Session> session;
    const auto finish = [&] { registry().made(key, session); };
    try {
        std::shared_ptr<Session> made(new Session(ControlThread::get(), options));
        made->thread_->network().run([&] {
            made->make_core();
            made->core_->begin();
        });
        made->wait_until_met(deadline, begin);
        creation.begin(made, true);
        // Creations of other threads that wait for the session overlap with this one: they begin
        // in finish(), before this one goes on.
        session = std::move(made);
    } catch (const std::system_error &error) {
        // Thrown by asio, for example when there are no free descriptors.
        finish();
        throw Error(VESCOMM_ERROR_SYSTEM, fmt::format("rank {} cannot set up the control plane: {}",
                                                      options.rank, error.what()));
    } catch (...) {
        finish();
        throw;
    }
    finish();
    return session;
}

void Session::wait_until_met(Deadline &deadline, Clock::time_point begin) {
    bool started = false, notified = false;
    std::optional<Error> failure;
    const auto look = [&] {
        thread_->network().run([&] {
            started = core_->started();
            failure = core_->failure();
            notified = core_->everyone_notified();
        });
    };
    LoopDeadline limit(deadline, Clock::now());
    std::optional<Clock::time_point> verdict;  // that of the hub comes before this time
    for (;;) {
        std::unique_lock lock(mutex_);
        const std::uint64_t seen = changes_;
        lock.unlock();
        look();
        if (started || failure) break;
        limit.look(Clock::now());
        deadline = limit.limit();
        if (verdict && Clock::now() >= *verdict) break;
        if (!verdict && limit.expired()) {
            const double waited = seconds_since(begin);
            thread_->network().run([&] { core_->expire(waited); });
            verdict = Clock::now() + std::chrono::seconds(2);
        }
        if (interrupted())
            throw Error(VESCOMM_ERROR_ABORTED,
                        fmt::format("rank {} was interrupted after {:.1f} s while it waited for "
                                    "all ranks to connect",
                                    options_.rank, seconds_since(begin)));
        lock.lock();
        changed_.wait_until(lock, next_interrupt(verdict.value_or(deadline.moment())),
                            [&] { return changes_ != seen; });
    }
    if (started && !failure) {
        thread_->network().run([&] { host_ = core_->host(); });
        return;
    }
    if (!failure)
        throw Error(
            VESCOMM_ERROR_TIMEOUT,
            fmt::format("rank {} gave up waiting for all ranks to come after {:.1f} s, and "
                        "rank 0 did not say which ranks are missing; see whether rank 0 is running",
                        options_.rank, seconds_since(begin)));
    // Stays to notify ranks that come a little later. After a timeout they have had enough time.
    if (options_.rank == 0 && failure->status != VESCOMM_ERROR_TIMEOUT) {
        const auto linger =
            std::min(deadline.moment(), Deadline::after(options_.linger_seconds).moment());
        while (!notified && Clock::now() < linger) {
            std::unique_lock lock(mutex_);
            changed_.wait_for(lock, std::chrono::milliseconds(5));
            lock.unlock();
            look();
        }
    }
    throw Error(*failure);
}

Session::~Session() {
    // The network's thread frees the objects that it uses.
    try {
        OsNetwork &network = thread_->network();
        bool done = core_ == nullptr;
        const auto until = Clock::now() + max_farewell_time;
        network.run([&] {
            if (core_) core_->finish();
        });
        while (!done) {
            network.run([&] { done = core_->deserted(); });
            if (done || Clock::now() >= until) break;
            std::unique_lock lock(mutex_);
            changed_.wait_for(lock, farewell_period);
        }
        std::unique_ptr<SessionCore> hub;
        network.run([&] {
            alive_.reset();
            if (!core_) return;
            if (!done && options_.rank == 0) {
                hub = std::move(core_);
                return;
            }
            thread_->remove(core_.get());
            core_.reset();
        });
        // Other processes still use the hub.
        if (hub) ControlThread::keep(thread_, std::move(hub));
    } catch (...) {
        // Out of memory: the connections stay open until the process ends.
        [[maybe_unused]] auto *leaked = core_.release();
    }
}

bool Session::intact() {
    bool intact = false;
    thread_->network().run([&] { intact = !core_->failure() && !core_->client().anyone_absent(); });
    return intact;
}

bool Session::ended_in_order() {
    bool ended = false;
    thread_->network().run([&] { ended = core_->client().ended_in_order(); });
    return ended;
}

// ---- groups ----

std::unique_ptr<Control> Session::open(const GroupId &id, std::vector<int> members,
                                       const std::string &label, Deadline deadline,
                                       Creation *creation, const GroupState *parent) {
    int rank = 0;
    while (members[static_cast<std::size_t>(rank)] != options_.rank) ++rank;
    const auto state = std::make_shared<GroupState>(id, rank, std::move(members));
    auto control = std::make_unique<GroupControl>(shared_from_this(), state);
    if (creation != nullptr) {
        const std::lock_guard lock(mutex_);
        creation->group_ = state;
    }
    // Opened even if creations overlap, because the other ranks must be notified.
    if (creation != nullptr) {
        post([state, label](SessionCore &core) { core.client().open(state, label); });
        try {
            creation->check();
        } catch (const Error &error) {
            control->fail(error.status, error.what());
            throw;
        }
    }
    control->wait_until_open(label, deadline, parent);
    return control;
}

}  // namespace vescomm::internal
