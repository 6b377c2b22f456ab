// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/hub_connection.h"

#include <fmt/format.h>

#include <utility>

namespace vescomm::internal {

HubConnection::HubConnection(Network &network, Clock::duration heartbeat, Clock::duration silence,
                             Events events)
    : network_(network), heartbeat_(heartbeat), silence_(silence), events_(std::move(events)) {}

// ---- the search ----

void HubConnection::search(std::vector<TcpAddress> addresses, std::string_view secret,
                           const Claim &claim,
                           std::function<SurvivorListener(const Stream &)> listen) {
    search_ = std::make_unique<HubSearch>(
        network_, std::move(addresses), secret, claim, HubSearch::Limits{},
        HubSearch::Events{[this](HubSearch::Found found) { take(std::move(found)); },
                          [this](const Error &error) {
                              end_search();
                              events_.failed(error);
                          },
                          std::move(listen)});
    search_again();
}

void HubConnection::search_again() {
    const Clock::time_point next = search_->tick();
    if (!search_) return;
    search_timer_ = network_.at(next, [this] {
        if (search_) search_again();
    });
}

// The search makes this call, so it is destroyed later.
void HubConnection::end_search() {
    network_.post([ended = std::shared_ptr<HubSearch>(std::move(search_))] {});
}

void HubConnection::take(HubSearch::Found found) {
    found.stream->limit_silence(std::chrono::duration<double>(silence_).count());
    address_ = found.stream->peer();
    link_ = std::make_unique<Link>(network_, std::move(found.stream), std::move(found.keys));
    end_search();
    link_->start(
        {[this](FrameType type, std::string_view payload) { events_.received(type, payload); },
         [this](const std::string &how) {
             events_.lost(Ended::died,
                          fmt::format("at {} died, or ended without leaving: its connection {}",
                                      address_, how));
         }},
        found.rest);
}

// ---- the connection ----

void HubConnection::send(FrameType type, std::string payload) {
    if (link_) link_->send(type, std::move(payload));
}

void HubConnection::send_data(const GroupId &group, Pieces pieces) {
    if (link_) link_->send_data(group, std::move(pieces));
}

void HubConnection::tick(Clock::duration stalled) {
    if (!open()) return;
    link_->forgive(stalled);
    const Clock::duration silent = network_.now() - link_->received_at();
    if (silent > silence_) {
        const double seconds = std::chrono::duration<double>(silent).count();
        link_->close();
        return events_.lost(Ended::silent,
                            fmt::format("at {} has been silent for {:.1f} s: its machine or "
                                        "network is gone, or it was stopped",
                                        address_, seconds));
    }
    if (link_->quiet() && network_.now() - link_->sent_at() >= heartbeat_ / 2)
        link_->send(FrameType::heartbeat);
}

void HubConnection::finish() {
    search_.reset();
    if (!open()) return;
    link_->send(FrameType::close);
    link_->finish();
}

}  // namespace vescomm::internal
