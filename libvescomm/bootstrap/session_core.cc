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
      survivor_acceptor_(network, options_.secret,
                         [this](Acceptor::Joined joined) { wait_here(std::move(joined)); }) {}

SessionCore::~SessionCore() = default;

// ---- beginning ----

void SessionCore::make_hub() {
    make_client();
    hub_ = std::make_unique<Hub>(
        network_,
        HubOptions{
            .ranks = options_.ranks,
            .build = options_.build,
            .heartbeat = heartbeat_,
            .silence = silence_,
            .listen = [this](const std::string &host) { return listen_for_survivors(host); }},
        // Called later by the network, possibly after this object is destroyed.
        [alive = std::weak_ptr<bool>(alive_), this](FrameType type, const std::string &payload) {
            if (!alive.expired()) client_->receive(type, payload);
        });
}

void SessionCore::make_client() {
    const SessionClient::Port port{[this](FrameType type, std::string payload) {
                                       if (hub_) hub_->receive_local(type, std::move(payload));
                                       else if (link_) link_->send(type, std::move(payload));
                                   },
                                   [this](const GroupId &group, Pieces pieces) {
                                       if (link_) return link_->send_data(group, std::move(pieces));
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
        search_ = std::make_unique<HubSearch>(
            network_, options_.addresses, options_.secret, claim, false,
            HubSearch::Events{
                [this](HubSearch::Found found) { connected(std::move(found)); },
                [this](const Error &error) { fail(error); },
                [this](const TcpAddress &local) { return listen_for_survivors(local.host).port; }});
        search_again();
    }
    schedule(std::min(heartbeat_, silence_ / 4));
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
    schedule(std::min(heartbeat_, silence_ / 4));
}

void SessionCore::begin_client(HubSearch::Found found) {
    make_client();
    connected(std::move(found));
    schedule(std::min(heartbeat_, silence_ / 4));
}

void SessionCore::search_again() {
    const Clock::time_point next = search_->tick();
    if (!search_) return;
    search_timer_ = network_.at(next, [this] {
        if (search_) search_again();
    });
}

void SessionCore::connected(HubSearch::Found found) {
    found.stream->limit_silence(options_.silence_seconds);
    hub_address_ = found.stream->peer();
    link_ = std::make_unique<Link>(network_, std::move(found.stream), std::move(found.keys));
    // The search makes this call, so it is destroyed later.
    network_.post([ended = std::shared_ptr<HubSearch>(std::move(search_))] {});
    link_->start(
        {[this](FrameType type, std::string_view payload) { client_->receive(type, payload); },
         [this](const std::string &how) {
             client_->lose_hub(
                 Ended::died, fmt::format("at {} died, or ended without leaving: its connection {}",
                                          hub_address_, how));
         }},
        found.rest);
}

void SessionCore::fail(const Error &error) {
    network_.post([ended = std::shared_ptr<HubSearch>(std::move(search_))] {});
    client_->fail(error.status, error.what());
}

std::optional<Error> SessionCore::failure() const {
    return client_->failure();
}

void SessionCore::expire(double waited_seconds) {
    if (hub_) return hub_->expire_meeting(0, waited_seconds);
    if (link_) {
        std::string payload;
        put_group(payload, whole_session);
        put_number(payload, std::uint64_t{0});
        put_number(payload, static_cast<std::uint64_t>(waited_seconds * 1e3));
        return link_->send(FrameType::expired, std::move(payload));
    }
    client_->fail(VESCOMM_ERROR_TIMEOUT,
                  fmt::format("rank {} of {} could not reach rank 0 before the timeout ({}); see "
                              "whether rank 0 is running and can be reached at this address",
                              options_.rank, options_.ranks, trouble()));
}

// ---- processes that come ----

void SessionCore::admit(Acceptor::Joined joined) {
    if (joined.claim.purpose != Claim::Purpose::session) return wait_here(std::move(joined));
    auto link = std::make_unique<Link>(network_, std::move(joined.stream), std::move(joined.keys));
    hub_->admit(joined.claim, std::move(link), joined.rest);
    // Every process has joined, and the port is free for the next session. Posted, because the
    // acceptor makes this call.
    if (hub_->complete())
        network_.post([alive = std::weak_ptr<bool>(alive_), this] {
            if (!alive.expired()) acceptor_.close();
        });
}

// Keeps a survivor until this process regroups with it. Its connection ends when the survivor dies.
void SessionCore::wait_here(Acceptor::Joined joined) {
    if (joined.claim.purpose != Claim::Purpose::regroup) return;
    // A rank that comes again has given up its earlier connection.
    const auto earlier = std::ranges::find_if(survivors_, [&](const Survivor &each) {
        return each.claim.group == joined.claim.group && each.claim.rank == joined.claim.rank;
    });
    if (earlier != survivors_.end()) survivors_.erase(earlier);
    survivors_.push_back({joined.claim, std::make_unique<Link>(network_, std::move(joined.stream),
                                                               std::move(joined.keys))});
    Link *link = survivors_.back().link.get();
    link->start({[](FrameType, std::string_view) {},
                 [this, link](const std::string &) {
                     // The link makes this call, so it is destroyed later.
                     const auto gone = std::ranges::find_if(
                         survivors_, [&](const Survivor &each) { return each.link.get() == link; });
                     if (gone == survivors_.end()) return;
                     network_.post([ended = std::shared_ptr<Link>(std::move(gone->link))] {});
                     survivors_.erase(gone);
                     if (survivor_changed_) survivor_changed_();
                 }},
                joined.rest);
    if (survivor_changed_) survivor_changed_();
}

TcpAddress SessionCore::listen_for_survivors(const std::string &host) {
    if (survivor_acceptor_.address().host != host) {
        survivor_acceptor_.close();
        survivor_acceptor_.listen({host, 0});
    }
    return survivor_acceptor_.address();
}

std::string SessionCore::host() const {
    return hub_ ? hub_->host() : survivor_acceptor_.address().host;
}

// ---- time ----

void SessionCore::schedule(Clock::duration in) {
    expected_tick_ = network_.now() + in;
    timer_ = network_.at(expected_tick_, [this] { tick(); });
}

void SessionCore::tick() {
    const Clock::duration stalled =
        std::max(network_.now() - expected_tick_, Clock::duration::zero());
    acceptor_.tidy();
    survivor_acceptor_.tidy();
    if (client_) client_->spread_failures();
    if (hub_) {
        hub_->tick(stalled);
        const Clock::time_point starved = acceptor_.starved_since();
        if (starved != Clock::time_point{} && network_.now() - starved >= max_starved_time)
            hub_->fail(VESCOMM_ERROR_SYSTEM,
                       "rank 0 has as many files open as it may, and cannot accept the connections "
                       "of the others; raise its limit (ulimit -n)");
    } else {
        look_after_hub(stalled);
    }
    if (finishing_ && deserted()) changed_();
    schedule(std::min(heartbeat_, silence_ / 4));
}

void SessionCore::look_after_hub(Clock::duration stalled) {
    if (!link_ || !link_->open()) return;
    link_->forgive(stalled);
    const Clock::duration silent = network_.now() - link_->received_at();
    if (silent > silence_) {
        const double seconds = std::chrono::duration<double>(silent).count();
        link_->close();
        return client_->lose_hub(Ended::silent,
                                 fmt::format("at {} has been silent for {:.1f} s: its machine or "
                                             "network is gone, or it was stopped",
                                             hub_address_, seconds));
    }
    if (link_->quiet() && network_.now() - link_->sent_at() >= heartbeat_ / 2)
        link_->send(FrameType::heartbeat);
}

// ---- the end ----

void SessionCore::finish() {
    finishing_ = true;
    survivor_acceptor_.close();
    survivors_.clear();
    if (hub_ && client_->started() && !client_->failure()) hub_->end_local();
    else if (hub_) hub_->finish();
    acceptor_.close();
    search_.reset();
    if (!link_ || !link_->open()) return;
    link_->send(FrameType::close);
    link_->finish();
}

bool SessionCore::deserted() const {
    if (hub_) return hub_->deserted();
    return !link_ || !link_->open();
}

}  // namespace vescomm::internal
