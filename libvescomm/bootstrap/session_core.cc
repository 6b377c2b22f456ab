// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/session_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace vescomm::internal {

namespace {

// Time after which the hub fails the session because this process has no free descriptor.
constexpr auto max_starved_time = std::chrono::seconds(1);

// A year stands for "longer than any job"; larger values would overflow the clock.
Clock::duration duration_of(double seconds) {
    const double capped = std::clamp(seconds, 0.0, 365.0 * 24 * 3600);
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(capped));
}

}  // namespace

SessionCore::SessionCore(Network &network, SessionOptions options, std::function<void()> changed)
    : network_(network),
      options_(std::move(options)),
      changed_(std::move(changed)),
      heartbeat_(duration_of(options_.heartbeat_seconds)),
      silence_(duration_of(options_.silence_seconds)),
      acceptor_(network, options_.secret,
                [this](Acceptor::Joined joined) { admit(std::move(joined)); }),
      survivors_(network, options_.secret),
      hub_connection_(
          network, heartbeat_, silence_,
          {[this](FrameType type, std::string_view payload) {
               client_->receive(type, payload);
               if (started()) survivors_.narrow(client_->listens(options_.rank));
           },
           [this](Ended how, const std::string &absence) { client_->lose_hub(how, absence); },
           [this](const Error &error) { client_->fail(error.status, error.what()); }}) {}

SessionCore::~SessionCore() = default;

// ---- beginning ----

void SessionCore::make_hub() {
    make_client();
    hub_ = std::make_unique<Hub>(
        network_,
        HubOptions{.ranks = options_.ranks,
                   .build = options_.build,
                   .heartbeat = heartbeat_,
                   .silence = silence_,
                   .listen = [this](const std::string &host) { return listen_for_survivors(host); },
                   .abandoned = [this] { return acceptor_.abandoned(); }},
        // Called later by the network, possibly after this object is destroyed.
        [alive = std::weak_ptr<bool>(alive_), this](FrameType type, const std::string &payload) {
            if (!alive.expired()) client_->receive(type, payload);
        });
}

void SessionCore::make_client() {
    const SessionClient::Port port{[this](FrameType type, std::string payload) {
                                       if (hub_) hub_->receive_local(type, std::move(payload));
                                       else hub_connection_.send(type, std::move(payload));
                                   },
                                   [this](const GroupId &group, Pieces pieces) {
                                       if (!hub_)
                                           return hub_connection_.send_data(group,
                                                                            std::move(pieces));
                                       for (const std::string &piece : *pieces) {
                                           std::string payload;
                                           put_group(payload, group);
                                           hub_->receive_local(FrameType::data, payload + piece);
                                       }
                                   }};
    client_ = std::make_unique<SessionClient>(options_.rank, options_.ranks, port, changed_);
}

void SessionCore::begin() {
    if (options_.rank == 0) {
        make_hub();
        if (options_.ranks > 1) {
            if (options_.listen_descriptor >= 0) acceptor_.listen_with(options_.listen_descriptor);
            else acceptor_.listen(options_.addresses.front());
        }
    } else {
        make_client();
        const Claim claim{.purpose = Claim::Purpose::session,
                          .group = {},
                          .rank = static_cast<std::uint32_t>(options_.rank),
                          .ranks = static_cast<std::uint32_t>(options_.ranks),
                          .port = 0,
                          .build = options_.build};
        hub_connection_.search(
            options_.addresses, options_.secret, claim,
            [this](const Stream &stream) { return listen_for_survivors(interface_of(stream)); });
    }
    schedule_tick();
}

void SessionCore::set_rank(int rank, int ranks) {
    options_.rank = rank;
    options_.ranks = ranks;
}

void SessionCore::begin_hub(std::vector<Survivor> survivors, const std::string &welcome) {
    make_hub();
    const auto dead = std::ranges::find_if(
        survivors, [](const Survivor &survivor) { return !survivor.link->open(); });
    for (Survivor &survivor : survivors)
        hub_->admit(survivor.claim, std::move(survivor.link), {}, welcome);
    // This survivor died after the survivors were counted.
    if (dead != survivors.end())
        hub_->fail(VESCOMM_ERROR_PEER_FAILED,
                   fmt::format("rank {} of {} died while the survivors met", dead->claim.rank,
                               options_.ranks));
    schedule_tick();
}

void SessionCore::begin_client(HubSearch::Found found) {
    make_client();
    hub_connection_.take(std::move(found));
    schedule_tick();
}

std::optional<Error> SessionCore::failure() const {
    return client_->failure();
}

void SessionCore::fail(vescomm_status_t status, const std::string &why) {
    // The client reports no failure of the session, because it usually learns it from the hub.
    if (hub_) hub_->fail(status, why);
    else if (hub_connection_.found() && !client_->failure())
        hub_connection_.send(FrameType::failure, failure_payload(whole_session, status, why));
    client_->fail(status, why);
}

void SessionCore::expire(double waited_seconds) {
    if (hub_) return hub_->expire_meeting(0, waited_seconds);
    if (hub_connection_.found()) {
        std::string payload;
        put_group(payload, whole_session);
        put_number(payload, std::uint64_t{0});
        put_number(payload, static_cast<std::uint64_t>(waited_seconds * 1e3));
        return hub_connection_.send(FrameType::expired, std::move(payload));
    }
    client_->fail(VESCOMM_ERROR_TIMEOUT,
                  fmt::format("rank {} of {} could not reach rank 0 before the timeout ({}); see "
                              "whether rank 0 is running and can be reached at this address",
                              options_.rank, options_.ranks, trouble()));
}

// ---- processes that come ----

void SessionCore::admit(Acceptor::Joined joined) {
    if (joined.claim.purpose != Claim::Purpose::session) return survivors_.keep(std::move(joined));
    auto link = std::make_unique<Link>(network_, std::move(joined.stream), std::move(joined.keys));
    hub_->admit(joined.claim, std::move(link), joined.rest);
    // Every process has joined, and the port is free for the next session. Posted, because the
    // acceptor makes this call.
    if (hub_->complete())
        network_.post([alive = std::weak_ptr<bool>(alive_), this] {
            if (!alive.expired()) acceptor_.close();
        });
}

// The interface of the connection to rank 0 reaches the other machines, except on the machine of
// rank 0 itself: it often resolves its own name to a loopback address, and rank 0 may have
// addresses on several interfaces. Only the hub sees which one the others reach.
std::string SessionCore::interface_of(const Stream &stream) const {
    const bool one_machine = std::ranges::all_of(
        options_.addresses, [](const TcpAddress &each) { return is_loopback(each.host); });
    const std::string local = stream.local().host;
    const bool is_it = options_.addresses.size() == 1 && !is_loopback(local);
    if (one_machine || is_it || !stays_on_machine(stream)) return local;
    return WaitingSurvivors::all_interfaces;
}

std::string SessionCore::host() const {
    return hub_ ? hub_->host() : survivors_.host();
}

// ---- time ----

void SessionCore::schedule_tick() {
    expected_tick_ = network_.now() + std::min(heartbeat_, silence_ / 4);
    timer_ = network_.at(expected_tick_, [this] { tick(); });
}

void SessionCore::tick() {
    const Clock::duration stalled =
        std::max(network_.now() - expected_tick_, Clock::duration::zero());
    // First: memory may run out below, and heartbeats go on nevertheless.
    schedule_tick();
    acceptor_.tidy();
    survivors_.tidy();
    if (client_) client_->spread_failures();
    if (hub_) {
        hub_->tick(stalled);
        const Clock::time_point starved = acceptor_.starved_since();
        if (starved != Clock::time_point{} && network_.now() - starved >= max_starved_time)
            hub_->fail(VESCOMM_ERROR_SYSTEM,
                       "rank 0 has as many files open as it may, and cannot accept the connections "
                       "of the others; raise its limit (ulimit -n)");
    } else {
        hub_connection_.tick(stalled);
    }
    if (finishing_ && deserted()) changed_();
}

// ---- the end ----

void SessionCore::finish() {
    finishing_ = true;
    survivors_.close();
    if (hub_ && client_->started() && !client_->failure()) hub_->end_local();
    else if (hub_) hub_->finish();
    acceptor_.close();
    hub_connection_.finish();
}

bool SessionCore::deserted() const {
    if (hub_) return hub_->deserted();
    return !hub_connection_.open();
}

}  // namespace vescomm::internal
