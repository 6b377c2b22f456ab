// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Connections that arrive faster than they are accepted.
#include "bootstrap/acceptor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>
#include <vector>

#include "bootstrap/os_network.h"

namespace vescomm::internal {
namespace {

constexpr std::string_view secret = "the secret of the test";
const Claim claim{.rank = 1, .ranks = 2};

// A connection to a port of this machine, whose first bytes are a hello.
class Greeting {
public:
    explicit Greeting(std::uint16_t port)
        : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), handshake_(secret, claim) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(port);
        EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr *>(&to), sizeof to), 0);
        const std::string hello = handshake_.hello();
        EXPECT_EQ(send(socket_.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(hello.size()));
    }

    // True if the listener proves that it knows the secret; false if it closes the connection.
    bool answered() {
        char bytes[4096];
        const ssize_t got = recv(socket_.get(), bytes, sizeof bytes, 0);
        if (got <= 0) return false;
        std::string_view reply(bytes, static_cast<std::size_t>(got));
        return handshake_.read(reply) == ClientHandshake::State::authenticated;
    }

private:
    Descriptor socket_;
    ClientHandshake handshake_;
};

// The network's thread is busy while the connections arrive: it accepts all of them in a row. The
// limit of pending connections is reached before.
TEST(Acceptor, AnswersEveryHelloThatArrivesInABurst) {
    OsNetwork network([](const std::exception &error) { ADD_FAILURE() << error.what(); });
    std::optional<Acceptor> acceptor;
    std::uint16_t port = 0;
    network.run([&] {
        acceptor.emplace(network, secret, [](Acceptor::Joined) { ADD_FAILURE() << "none joins"; });
        acceptor->listen({"127.0.0.1", 0});
        port = acceptor->address().port;
    });
    std::vector<std::unique_ptr<Greeting>> pending;
    for (std::size_t i = 0; i < Acceptor::max_pending; ++i) {
        pending.push_back(std::make_unique<Greeting>(port));
        ASSERT_TRUE(pending.back()->answered()) << i;
    }
    constexpr int burst = 100;
    std::vector<std::unique_ptr<Greeting>> arriving;
    network.run([&] {
        for (int i = 0; i < burst; ++i) arriving.push_back(std::make_unique<Greeting>(port));
    });
    for (int i = 0; i < burst; ++i) EXPECT_TRUE(arriving[i]->answered()) << i;
    network.run([&] { acceptor.reset(); });
}

}  // namespace
}  // namespace vescomm::internal
