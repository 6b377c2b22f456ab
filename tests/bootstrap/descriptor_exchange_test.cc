// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Descriptors are passed between processes of a machine also where one of them has as many files
// open as it may, and where others fill the queue of its socket.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <future>

#include "base/error.h"
#include "bootstrap/descriptor_exchange.h"
#include "bootstrap/os_network.h"
#include "session_ranks.h"

namespace vescomm {
namespace {

using testing_support::generous;
using testing_support::RankProcess;

constexpr std::size_t name_bytes = 40;  // of the socket, at the beginning of a ticket

TEST(DescriptorExchange, ServesWhereNoDescriptorIsLeft) {
    RankProcess server([](const RankProcess::Say &say) {
        OsNetwork network([](const std::exception &) {});
        DescriptorExchange exchange(network);
        const DescriptorExchange::Offer offer = exchange.offer(0);
        rlimit limit{};
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = 64;
        setrlimit(RLIMIT_NOFILE, &limit);
        while (dup(0) >= 0) {
        }
        say(offer.ticket());
        for (;;) pause();
    });
    const std::string ticket = server.line();
    OsNetwork network([](const std::exception &) {});
    DescriptorExchange exchange(network);
    for (int i = 0; i < 20; ++i) {
        DescriptorExchange::Fetch first = exchange.fetch(ticket), second = exchange.fetch(ticket);
        EXPECT_TRUE(first.wait(generous()).open());
        EXPECT_TRUE(second.wait(generous()).open());
    }
}

TEST(DescriptorExchange, WaitsForAPlaceInTheQueueOfTheSocket) {
    OsNetwork network([](const std::exception &) {}), other([](const std::exception &) {});
    DescriptorExchange server(network), client(other);
    const DescriptorExchange::Offer offer = server.offer(0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = offer.ticket().substr(0, name_bytes);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());

    // While its thread does something else, the queue is filled.
    std::promise<void> go_on;
    network.post([&] { go_on.get_future().wait(); });
    std::vector<Descriptor> strays;
    for (;;) {
        Descriptor stray(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        ASSERT_TRUE(stray.open()) << "more files must be allowed";
        if (connect(stray.get(), reinterpret_cast<sockaddr *>(&address), length) != 0) break;
        strays.push_back(std::move(stray));
    }
    ASSERT_EQ(errno, EAGAIN);
    DescriptorExchange::Fetch fetch = client.fetch(offer.ticket());
    // It posts its attempt: that has been made after two rounds.
    for (int round = 0; round < 2; ++round) other.run([] {});
    EXPECT_FALSE(fetch.test().has_value());
    go_on.set_value();
    EXPECT_TRUE(fetch.wait(generous()).open());
}

}  // namespace
}  // namespace vescomm
