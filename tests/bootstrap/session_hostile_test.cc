// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 waits for rank 1 while unauthenticated peers connect. None of them has any effect.
#include <gtest/gtest.h>

#include <future>
#include <random>

#include "bootstrap/acceptor.h"
#include "bootstrap/handshake.h"
#include "session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

constexpr std::string_view secret = "the secret of the test";
const Claim claim{.rank = 1, .ranks = 2};

// Rank 0 waits at `place` while the test disturbs it; then rank 1 comes, and both must succeed.
void expect_undisturbed(const std::function<void(const Place &)> &disturb) {
    const Place place(2);
    Outcome root;
    std::thread thread([&] {
        root = outcome_of([&] {
            const auto control = take_part(place.options(0), generous());
            EXPECT_EQ(control->all_gather("call", "zero", generous()),
                      (std::vector<std::string>{"zero", "one"}));
            control->leave(generous());
        });
    });
    disturb(place);
    const Outcome leaf = outcome_of([&] {
        const auto control = take_part(place.options(1), generous());
        control->all_gather("call", "one", generous());
        control->leave(generous());
    });
    thread.join();
    EXPECT_FALSE(root) << root->second;
    EXPECT_FALSE(leaf) << leaf->second;
}

void expect_rejected(const std::string &bytes) {
    expect_undisturbed([&](const Place &place) {
        UnauthenticatedPeer peer(place.address());
        peer.say(bytes);
        EXPECT_TRUE(peer.rejected());
    });
}

// The first frame of a joining rank, with some bytes changed.
std::string hello_with(std::size_t at, std::initializer_list<int> bytes) {
    std::string hello = ClientHandshake(secret, claim).hello();
    for (const int byte : bytes) hello[at++] = static_cast<char>(byte);
    return hello;
}

TEST(SessionHostile, RejectsForeignProtocols) {
    expect_rejected("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_rejected("SSH-2.0-scanner\r\n");
    expect_rejected(std::string(3, '\0'));
}

TEST(SessionHostile, RejectsRandomBytes) {
    std::mt19937 random(5);
    expect_undisturbed([&](const Place &place) {
        for (int round = 0; round < 100; ++round) {
            std::string bytes(1 + random() % 2000, '\0');
            for (char &byte : bytes) byte = static_cast<char>(random());
            UnauthenticatedPeer peer(place.address());
            peer.say(bytes);
            EXPECT_TRUE(peer.rejected());
        }
    });
}

TEST(SessionHostile, RejectsInvalidHeaders) {
    expect_rejected(hello_with(0, {'X'}));  // magic
    expect_rejected(hello_with(4, {99}));  // version
    expect_rejected(hello_with(5, {200}));  // type
    expect_rejected(hello_with(8, {1}));  // sequence
    expect_rejected(hello_with(16, {255, 255, 255, 127}));  // 2 GiB
    expect_rejected(hello_with(16, {255, 255, 255, 255}));  // -1
    static_assert(max_unauthenticated_payload == 512);
    expect_rejected(hello_with(16, {1, 2}));  // 513, one more than allowed
    expect_rejected(hello_with(60, {1, 2, 3}));  // MAC
}

TEST(SessionHostile, RejectsTruncatedFrames) {
    const std::string hello = ClientHandshake(secret, claim).hello();
    expect_undisturbed([&](const Place &place) {
        for (std::size_t size = 0; size < hello.size(); size += 7) {
            UnauthenticatedPeer peer(place.address());
            peer.say(hello.substr(0, size));
            peer.stop_sending();
            EXPECT_TRUE(peer.rejected());
        }
    });
}

TEST(SessionHostile, RejectsConversationsRecordedInAnotherSession) {
    // Recorded from a rank of the same job in another session: its hello is accepted, but its join
    // is not authentic here.
    Cookies cookies;
    ServerHandshake server(secret, cookies);
    ClientHandshake client(secret, claim);
    const std::string hello = client.hello();
    std::string reply;
    std::string_view bytes = hello;
    server.read(bytes, reply, Clock::now());
    bytes = reply;
    ASSERT_EQ(client.read(bytes), ClientHandshake::State::authenticated);
    expect_rejected(hello + client.join());
}

TEST(SessionHostile, ReplayedJoinIsRejected) {
    // The listener keeps no state of a connection except the nonces that have joined.
    Cookies cookies;
    ClientHandshake client(secret, claim);
    const std::string hello = client.hello();
    const auto now = Clock::now();
    const auto feed = [now](ServerHandshake &server, std::string_view bytes, std::string &reply) {
        return server.read(bytes, reply, now);
    };
    std::string reply;
    ServerHandshake server(secret, cookies);
    EXPECT_EQ(feed(server, hello, reply), ServerHandshake::State::waiting);
    std::string_view bytes = reply;
    ASSERT_EQ(client.read(bytes), ClientHandshake::State::authenticated);
    const std::string join = client.join();
    EXPECT_EQ(feed(server, join, reply), ServerHandshake::State::joined);

    ServerHandshake replayed(secret, cookies);
    feed(replayed, hello, reply);
    EXPECT_EQ(feed(replayed, join, reply), ServerHandshake::State::rejected);
}

TEST(SessionHostile, RejectsReflectedBytesOfRankZero) {
    expect_undisturbed([](const Place &place) {
        UnauthenticatedPeer peer(place.address());
        peer.say(ClientHandshake(secret, claim).hello());
        const std::size_t challenge_and_proof = (20 + 32 + 32) + (20 + 0 + 32);
        const std::string said = peer.receive(challenge_and_proof);
        EXPECT_EQ(said.size(), challenge_and_proof);
        peer.say(said);
        EXPECT_TRUE(peer.rejected());
    });
}

TEST(SessionHostile, AnotherSecretIsAnErrorOfTheJoiningRankOnly) {
    expect_undisturbed([](const Place &place) {
        SessionOptions options = place.options(1);
        options.secret = "another secret";
        expect_outcome(outcome_of([&] { take_part(options, generous()); }), VESCOMM_ERROR_MISMATCH,
                       {"rank 0 at " + to_text(place.address()), "does not know this secret"});
    });
}

TEST(SessionHostile, ATimeoutMentionsAProcessWithAnotherSecret) {
    const Place place(2);
    SessionOptions other = place.options(1);
    other.secret = "another secret";
    const auto rank0 = std::async(std::launch::async, [&] {
        expect_outcome(outcome_of([&] { take_part(place.options(0), Deadline::after(3)); }),
                       VESCOMM_ERROR_TIMEOUT,
                       {"rank 1 of 2 did not come",
                        "one connection reached it and ended before joining", "same secret"});
    });
    expect_outcome(outcome_of([&] { take_part(other, generous()); }), VESCOMM_ERROR_MISMATCH, {});
}

TEST(SessionHostile, SilentConnectionsDelayNoRank) {
    std::optional<UnauthenticatedPeer> silent, slow;
    expect_undisturbed([&](const Place &place) {
        silent.emplace(place.address());
        slow.emplace(place.address());
        slow->say(ClientHandshake(secret, claim).hello().substr(0, 30));
    });
    // Rank 0 has continued and has closed its listener.
    EXPECT_TRUE(silent->rejected());
    EXPECT_TRUE(slow->rejected());
}

TEST(SessionHostile, EvictsTheOldestPendingConnections) {
    constexpr std::size_t more = 100;
    std::vector<UnauthenticatedPeer> peers;
    expect_undisturbed([&](const Place &place) {
        for (std::size_t i = 0; i < Acceptor::max_pending + more; ++i) {
            peers.emplace_back(place.address());
            EXPECT_TRUE(peers.back().connected());
            if (i % 5 == 0) peers.back().say("\xd5");
        }
        // The connections that have been silent for the longest time are closed.
        for (std::size_t i = 0; i < more; ++i) EXPECT_TRUE(peers[i].rejected()) << i;
    });
    for (UnauthenticatedPeer &peer : peers) EXPECT_TRUE(peer.rejected());
}

TEST(SessionHostile, EvictsSilentConnectionsBeforeThoseThatSentAHello) {
    const Place place(2);
    std::thread thread(
        [&] { outcome_of([&] { take_part(place.options(0), Deadline::after(60)); }); });
    UnauthenticatedPeer slow(place.address());
    slow.say(ClientHandshake(secret, claim).hello());
    const std::size_t challenge_and_proof = (20 + 32 + 32) + (20 + 0 + 32);
    EXPECT_EQ(slow.receive(challenge_and_proof).size(), challenge_and_proof);
    std::vector<UnauthenticatedPeer> peers;
    for (std::size_t i = 0; i < 2 * Acceptor::max_pending; ++i) peers.emplace_back(place.address());
    // The flood has passed through: the whole first half has been closed.
    for (std::size_t i = 0; i < Acceptor::max_pending; ++i) EXPECT_TRUE(peers[i].rejected());
    EXPECT_FALSE(slow.rejected(Deadline::after(0)));
    take_part(place.options(1), generous());
    thread.join();
}

TEST(SessionHostile, AddressOfAForeignServiceIsNotRankZero) {
    // A foreign service that sends a greeting at once.
    const auto listeners = listen_on({"127.0.0.1", 0});
    std::atomic<bool> stop = false;
    std::thread service([&] {
        while (!stop) {
            pollfd entry{listeners[0].get(), POLLIN, 0};
            poll(&entry, 1, 10);
            Descriptor connection(accept4(listeners[0].get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (connection.open())
                std::ignore = send(connection.get(), "220 mail\r\n", 10, MSG_NOSIGNAL);
        }
    });
    SessionOptions options = Place(2).options(1);
    options.addresses = {{"127.0.0.1", port_of(listeners[0].get())}};
    expect_outcome(outcome_of([&] { take_part(options, Deadline::after(0.5)); }),
                   VESCOMM_ERROR_TIMEOUT, {"127.0.0.1", "no rank 0 of vescomm"});

    // The real rank 0 is found at the next address.
    const Place place(2);
    const auto outcomes = run_threads(
        place, [](Control &control) { control.leave(generous()); },
        [&](SessionOptions &real) {
            real.addresses.insert(real.addresses.begin(), options.addresses[0]);
        });
    for (const Outcome &outcome : outcomes) EXPECT_FALSE(outcome) << outcome->second;
    stop = true;
    service.join();
}

}  // namespace
}  // namespace vescomm::internal
