// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Descriptors are passed between processes of a machine, also if one of them has reached its limit
// of open files, or if unauthenticated peers fill the queue of its socket.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <future>

#include "base/error.h"
#include "bootstrap/descriptor_exchange.h"
#include "bootstrap/os_network.h"
#include "session_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::generous;
using testing_support::RankProcess;

// length of the name of the socket, at the start of a ticket
constexpr std::size_t name_bytes = 40;

TEST(DescriptorExchange, ServesAtTheLimitOfOpenFiles) {
    if (std::getenv("VESCOMM_TEST_NEEDS_FILES") != nullptr)
        GTEST_SKIP() << "UBSan needs files while it checks the types of objects";
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
        EXPECT_TRUE(first.wait(generous(), 1, 0).open());
        EXPECT_TRUE(second.wait(generous(), 1, 0).open());
    }
}

TEST(DescriptorExchange, FetchWaitsWhileTheSocketQueueIsFull) {
    OsNetwork network([](const std::exception &) {}), other([](const std::exception &) {});
    DescriptorExchange server(network), client(other);
    const DescriptorExchange::Offer offer = server.offer(0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = offer.ticket().substr(0, name_bytes);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());

    // Fills the queue while the server's thread is busy.
    std::promise<void> go_on;
    network.post([&] { go_on.get_future().wait(); });
    std::vector<Descriptor> peers;
    for (;;) {
        Descriptor peer(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        ASSERT_TRUE(peer.open()) << "more files must be allowed";
        if (connect(peer.get(), reinterpret_cast<sockaddr *>(&address), length) != 0) break;
        peers.push_back(std::move(peer));
    }
    ASSERT_EQ(errno, EAGAIN);
    DescriptorExchange::Fetch fetch = client.fetch(offer.ticket());
    // The fetch posts its attempt; after two empty functions the attempt has been made.
    for (int round = 0; round < 2; ++round) other.run([] {});
    EXPECT_FALSE(fetch.test().has_value());
    go_on.set_value();
    EXPECT_TRUE(fetch.wait(generous(), 1, 0).open());
}

}  // namespace
}  // namespace vescomm::internal
