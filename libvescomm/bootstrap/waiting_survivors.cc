// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/waiting_survivors.h"

#include <algorithm>
#include <utility>

namespace vescomm::internal {

namespace {

std::uint64_t random_number() {
    const Nonce nonce = random_nonce();
    return get_number<std::uint64_t>(reinterpret_cast<const char *>(nonce.data()));
}

}  // namespace

WaitingSurvivors::WaitingSurvivors(Network &network, std::string_view secret)
    : network_(network),
      number_(random_number()),
      secret_(secret_of_listener(secret, number_)),
      acceptor_(network, secret_, [this](Acceptor::Joined joined) { keep(std::move(joined)); }) {}

SurvivorListener WaitingSurvivors::listen(const std::string &host) {
    if (acceptor_.address().host != host) {
        acceptor_.close();
        acceptor_.listen({host, 0});
    }
    everywhere_ = host == all_interfaces;
    return {.address = acceptor_.address(), .number = number_};
}

void WaitingSurvivors::narrow(const std::string &address) {
    if (!std::exchange(everywhere_, false)) return;
    acceptor_.narrow(parse_tcp_address(address, "the address of this process").host);
}

void WaitingSurvivors::keep(Acceptor::Joined joined) {
    if (joined.claim.purpose != Claim::Purpose::regroup) return;
    // A rank that comes again has given up its earlier connection.
    const auto earlier = std::ranges::find_if(survivors_, [&](const Survivor &each) {
        return each.claim.group == joined.claim.group && each.claim.rank == joined.claim.rank;
    });
    if (earlier != survivors_.end()) survivors_.erase(earlier);
    survivors_.push_back({.claim = joined.claim,
                          .link = std::make_unique<Link>(network_, std::move(joined.stream),
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
                     if (changed_) changed_();
                 }},
                joined.rest);
    if (changed_) changed_();
}

void WaitingSurvivors::close() {
    acceptor_.close();
    survivors_.clear();
}

}  // namespace vescomm::internal
