// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 waits for rank 1; others come instead. None of them changes anything.
#include <gtest/gtest.h>

#include <random>

#include "bootstrap/acceptor.h"
#include "bootstrap/handshake.h"
#include "session_ranks.h"

namespace vescomm {
namespace {

using namespace testing_support;

constexpr std::string_view secret = "the secret of the test";
const Claim claim{.rank = 1, .ranks = 2};

// Rank 0 is waiting at `place` while the test does something; then rank 1 comes, and all is well.
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

void expect_sent_away(const std::string &bytes) {
    expect_undisturbed([&](const Place &place) {
        Outsider outsider(place.address());
        outsider.say(bytes);
        EXPECT_TRUE(outsider.sent_away());
    });
}

// The frame that a joining rank would begin with, and a change to it.
std::string hello_with(std::size_t at, std::initializer_list<int> bytes) {
    std::string hello = ClientHandshake(secret, claim).hello();
    for (const int byte : bytes) hello[at++] = static_cast<char>(byte);
    return hello;
}

TEST(SessionHostile, ForeignProtocolsAreSentAway) {
    expect_sent_away("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_sent_away("SSH-2.0-scanner\r\n");
    expect_sent_away(std::string(3, '\0'));
}

TEST(SessionHostile, RandomBytesAreSentAway) {
    std::mt19937 random(5);
    expect_undisturbed([&](const Place &place) {
        for (int round = 0; round < 100; ++round) {
            std::string bytes(1 + random() % 2000, '\0');
            for (char &byte : bytes) byte = static_cast<char>(random());
            Outsider outsider(place.address());
            outsider.say(bytes);
            EXPECT_TRUE(outsider.sent_away());
        }
    });
}

TEST(SessionHostile, WrongHeadersAreSentAway) {
    expect_sent_away(hello_with(0, {'X'}));  // magic
    expect_sent_away(hello_with(4, {99}));  // version
    expect_sent_away(hello_with(5, {200}));  // type
    expect_sent_away(hello_with(8, {1}));  // sequence
    expect_sent_away(hello_with(16, {255, 255, 255, 127}));  // 2 GiB
    expect_sent_away(hello_with(16, {255, 255, 255, 255}));  // -1
    static_assert(max_unauthenticated_payload == 512);
    expect_sent_away(hello_with(16, {1, 2}));  // 513, one more than allowed
    expect_sent_away(hello_with(60, {1, 2, 3}));  // seal
}

TEST(SessionHostile, TruncatedFramesAreSentAway) {
    const std::string hello = ClientHandshake(secret, claim).hello();
    expect_undisturbed([&](const Place &place) {
        for (std::size_t size = 0; size < hello.size(); size += 7) {
            Outsider outsider(place.address());
            outsider.say(hello.substr(0, size));
            outsider.stop_talking();
            EXPECT_TRUE(outsider.sent_away());
        }
    });
}

TEST(SessionHostile, ConversationsRecordedElsewhereAreSentAway) {
    // What a rank of the same job said in another session: its hello is harmless, its join is not
    // it.
    Cookies cookies;
    ServerHandshake server(secret, cookies);
    ClientHandshake client(secret, claim);
    const std::string hello = client.hello();
    std::string reply;
    std::string_view bytes = hello;
    server.read(bytes, reply, Clock::now());
    bytes = reply;
    ASSERT_EQ(client.read(bytes), ClientHandshake::State::authenticated);
    expect_sent_away(hello + client.join());
}

TEST(SessionHostile, AJoinThatWasRecordedHereJoinsOnce) {
    // The listener keeps nothing of a connection but the nonces that have joined.
    Cookies cookies;
    ClientHandshake client(secret, claim);
    const std::string hello = client.hello();
    const auto now = Clock::now();
    const auto tell = [now](ServerHandshake &server, std::string_view bytes, std::string &reply) {
        return server.read(bytes, reply, now);
    };
    std::string reply;
    ServerHandshake server(secret, cookies);
    EXPECT_EQ(tell(server, hello, reply), ServerHandshake::State::waiting);
    std::string_view bytes = reply;
    ASSERT_EQ(client.read(bytes), ClientHandshake::State::authenticated);
    const std::string join = client.join();
    EXPECT_EQ(tell(server, join, reply), ServerHandshake::State::joined);

    ServerHandshake replayed(secret, cookies);
    tell(replayed, hello, reply);
    EXPECT_EQ(tell(replayed, join, reply), ServerHandshake::State::rejected);
}

TEST(SessionHostile, WhatRankZeroSaidIsNoGoodAsAnAnswer) {
    expect_undisturbed([](const Place &place) {
        Outsider outsider(place.address());
        outsider.say(ClientHandshake(secret, claim).hello());
        const std::size_t challenge_and_proof = (20 + 32 + 32) + (20 + 0 + 32);
        const std::string said = outsider.hear(challenge_and_proof);
        EXPECT_EQ(said.size(), challenge_and_proof);
        outsider.say(said);
        EXPECT_TRUE(outsider.sent_away());
    });
}

TEST(SessionHostile, AnotherSecretIsAnErrorThereAndNothingHere) {
    expect_undisturbed([](const Place &place) {
        SessionOptions options = place.options(1);
        options.secret = "another secret";
        expect_outcome(outcome_of([&] { take_part(options, generous()); }), VESCOMM_ERROR_MISMATCH,
                       {"rank 0 at " + to_text(place.address()), "does not know this secret"});
    });
}

TEST(SessionHostile, AConnectionThatStaysSilentDelaysNobody) {
    std::optional<Outsider> silent, slow;
    expect_undisturbed([&](const Place &place) {
        silent.emplace(place.address());
        slow.emplace(place.address());
        slow->say(ClientHandshake(secret, claim).hello().substr(0, 30));
    });
    // Rank 0 has gone on, and has closed its door.
    EXPECT_TRUE(silent->sent_away());
    EXPECT_TRUE(slow->sent_away());
}

TEST(SessionHostile, CrowdsMakeRoomForLaterOnes) {
    constexpr std::size_t more = 100;
    std::vector<Outsider> crowd;
    expect_undisturbed([&](const Place &place) {
        for (std::size_t i = 0; i < Acceptor::max_pending + more; ++i) {
            crowd.emplace_back(place.address());
            EXPECT_TRUE(crowd.back().connected());
            if (i % 5 == 0) crowd.back().say("\xd5");
        }
        // Those that have been silent for the longest time have been sent away.
        for (std::size_t i = 0; i < more; ++i) EXPECT_TRUE(crowd[i].sent_away()) << i;
    });
    for (Outsider &outsider : crowd) EXPECT_TRUE(outsider.sent_away());
}

TEST(SessionHostile, SilentConnectionsAreClosedBeforeOnesThatSpeakTheProtocol) {
    const Place place(2);
    std::thread thread(
        [&] { outcome_of([&] { take_part(place.options(0), Deadline::after(60)); }); });
    Outsider slow(place.address());
    slow.say(ClientHandshake(secret, claim).hello());
    const std::size_t challenge_and_proof = (20 + 32 + 32) + (20 + 0 + 32);
    EXPECT_EQ(slow.hear(challenge_and_proof).size(), challenge_and_proof);
    std::vector<Outsider> crowd;
    for (std::size_t i = 0; i < 2 * Acceptor::max_pending; ++i) crowd.emplace_back(place.address());
    // Every silent one of the first half is gone: the flood has passed through.
    for (std::size_t i = 0; i < Acceptor::max_pending; ++i) EXPECT_TRUE(crowd[i].sent_away());
    EXPECT_FALSE(slow.sent_away(Deadline::after(0)));
    take_part(place.options(1), generous());
    thread.join();
}

TEST(SessionHostile, AnAddressThatAnswersNonsenseIsNotRankZero) {
    // A service that says something at once, as many do, and one that says nothing.
    const auto listeners = listen_on({"127.0.0.1", 0});
    std::atomic<bool> stop = false;
    std::thread service([&] {
        while (!stop) {
            pollfd entry{listeners[0].get(), POLLIN, 0};
            poll(&entry, 1, 10);
            Descriptor guest(accept4(listeners[0].get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (guest.open()) std::ignore = send(guest.get(), "220 mail\r\n", 10, MSG_NOSIGNAL);
        }
    });
    SessionOptions options = Place(2).options(1);
    options.addresses = {{"127.0.0.1", port_of(listeners[0].get())}};
    expect_outcome(outcome_of([&] { take_part(options, Deadline::after(0.5)); }),
                   VESCOMM_ERROR_TIMEOUT, {"127.0.0.1", "no rank 0 of vescomm"});

    // The real one is found next to it.
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
}  // namespace vescomm
