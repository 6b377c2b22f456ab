// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Frames and handshakes against hostile bytes: only the exact frame at its position is accepted.
#include "bootstrap/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "bootstrap/gathering.h"
#include "bootstrap/handshake.h"
#include "bootstrap/wire.h"

namespace vescomm::internal {
namespace {

constexpr std::string_view secret = "a secret of the test";

Nonce nonce_of(unsigned char fill) {
    Nonce nonce;
    nonce.fill(fill);
    return nonce;
}

FrameKey key() {
    return session_key(secret, Direction::from_joiner, nonce_of(1), nonce_of(2));
}

std::string frame(FrameType type, std::string_view payload) {
    FrameEncoder encoder(key());
    std::string bytes;
    encoder.append(bytes, type, payload);
    return bytes;
}

// Feeds bytes to a fresh decoder, `step` at a time, and returns its state.
FrameDecoder::State decode(std::string_view bytes, std::size_t step, FrameDecoder &decoder) {
    auto state = FrameDecoder::State::incomplete;
    while (!bytes.empty() && state == FrameDecoder::State::incomplete) {
        std::string_view piece = bytes.substr(0, step);
        bytes.remove_prefix(piece.size());
        state = decoder.read(piece);
    }
    return state;
}

FrameFault fault_of(std::string_view bytes, std::size_t limit = max_payload_bytes) {
    FrameDecoder decoder(key(), limit);
    decode(bytes, bytes.size(), decoder);
    return decoder.fault();
}

std::string payload_of(std::size_t bytes, std::uint32_t seed = 7) {
    std::mt19937 random(seed);
    std::string payload(bytes, '\0');
    std::generate(payload.begin(), payload.end(), [&] { return static_cast<char>(random()); });
    return payload;
}

TEST(Frame, ArrivesInPiecesOfAnySize) {
    for (const std::size_t size : {0u, 1u, 31u, 1000u}) {
        const std::string payload = payload_of(size);
        const std::string bytes = frame(FrameType::data, payload);
        EXPECT_EQ(bytes.size(), frame_header_bytes + size + frame_mac_bytes);
        for (std::size_t step = 1; step <= bytes.size(); ++step) {
            FrameDecoder decoder(key(), max_payload_bytes);
            ASSERT_EQ(decode(bytes, step, decoder), FrameDecoder::State::complete) << step;
            EXPECT_EQ(decoder.type(), FrameType::data);
            EXPECT_EQ(decoder.payload(), payload);
        }
    }
}

TEST(Frame, KeepsFollowingBytesForTheNextCall) {
    FrameEncoder encoder(key());
    std::string bytes;
    for (int i = 0; i < 5; ++i) encoder.append(bytes, FrameType::data, std::to_string(i));
    std::string_view rest = bytes;
    FrameDecoder decoder(key(), max_payload_bytes);
    for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(decoder.read(rest), FrameDecoder::State::complete);
        EXPECT_EQ(decoder.payload(), std::to_string(i));
    }
    EXPECT_TRUE(rest.empty());
    EXPECT_EQ(decoder.read(rest), FrameDecoder::State::incomplete);
}

TEST(Frame, DetectsEveryFlippedBit) {
    const std::string good = frame(FrameType::data, "some payload");
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
        std::string bytes = good;
        bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
        // With a longer length the decoder waits for more bytes, which the MAC then covers as well.
        bytes += std::string(300, 'x');
        FrameDecoder decoder(key(), 256);
        EXPECT_NE(decode(bytes, bytes.size(), decoder), FrameDecoder::State::complete) << bit;
    }
}

TEST(Frame, ReportsTheKindOfFault) {
    const std::string good = frame(FrameType::data, "payload");
    const auto with = [&](std::size_t at, char value) {
        std::string bytes = good;
        bytes[at] = value;
        return bytes;
    };
    EXPECT_EQ(fault_of("G"), FrameFault::magic);
    EXPECT_EQ(fault_of(with(3, 'x')), FrameFault::magic);
    EXPECT_EQ(fault_of(with(4, 9)), FrameFault::version);
    EXPECT_EQ(fault_of(with(5, 0)), FrameFault::type);
    EXPECT_EQ(fault_of(with(5, 127)), FrameFault::type);
    EXPECT_EQ(fault_of(with(7, 1)), FrameFault::type);
    EXPECT_EQ(fault_of(with(8, 1)), FrameFault::sequence);
    EXPECT_EQ(fault_of(good, 6), FrameFault::length);
    EXPECT_EQ(fault_of(with(19, '\xff')), FrameFault::length) << "a negative length";
    EXPECT_EQ(fault_of(with(25, 'x')), FrameFault::mac);
    EXPECT_EQ(fault_of(with(good.size() - 1, 0)), FrameFault::mac);
    EXPECT_EQ(fault_of(good), FrameFault::none);
}

TEST(Frame, ChecksTheHeaderBeforeThePayloadArrives) {
    std::string header =
        frame(FrameType::data, std::string(100, 'x')).substr(0, frame_header_bytes);
    EXPECT_EQ(fault_of(header, 99), FrameFault::length);
    EXPECT_EQ(fault_of(header, 100), FrameFault::none);
}

TEST(Frame, StaysBrokenAfterAFault) {
    FrameDecoder decoder(key(), max_payload_bytes);
    std::string_view foreign = "GET / HTTP/1.1\r\n\r\n";
    EXPECT_EQ(decoder.read(foreign), FrameDecoder::State::broken);
    const std::string good = frame(FrameType::data, "payload");
    std::string_view bytes = good;
    EXPECT_EQ(decoder.read(bytes), FrameDecoder::State::broken);
    EXPECT_EQ(bytes.size(), good.size());
}

TEST(Frame, RejectsRepeatedDroppedAndReorderedFrames) {
    FrameEncoder encoder(key());
    std::vector<std::string> frames(3);
    for (std::string &bytes : frames) encoder.append(bytes, FrameType::data, "same");
    EXPECT_EQ(fault_of(frames[0] + frames[1] + frames[2]), FrameFault::none);
    const auto last_fault = [&](std::initializer_list<int> order) {
        FrameDecoder decoder(key(), max_payload_bytes);
        for (const int i : order) {
            std::string_view bytes = frames[i];
            decoder.read(bytes);
        }
        return decoder.fault();
    };
    EXPECT_EQ(last_fault({0, 1, 2}), FrameFault::none);
    EXPECT_EQ(last_fault({0, 0}), FrameFault::sequence);
    EXPECT_EQ(last_fault({0, 2}), FrameFault::sequence);
    EXPECT_EQ(last_fault({1}), FrameFault::sequence);
}

TEST(Frame, FailsUnderAnyOtherKey) {
    const std::string bytes = frame(FrameType::data, "payload");
    const auto fault_under = [&](const FrameKey &other) {
        FrameDecoder decoder(other, max_payload_bytes);
        std::string_view rest = bytes;
        decoder.read(rest);
        return decoder.fault();
    };
    EXPECT_EQ(fault_under(key()), FrameFault::none);
    EXPECT_EQ(fault_under(open_key()), FrameFault::mac);
    const auto made = [](std::string_view text, Direction direction, int a, int b) {
        return session_key(text, direction, nonce_of(static_cast<unsigned char>(a)),
                           nonce_of(static_cast<unsigned char>(b)));
    };
    EXPECT_EQ(fault_under(made(secret, Direction::to_joiner, 1, 2)), FrameFault::mac);
    EXPECT_EQ(fault_under(made(secret, Direction::from_joiner, 2, 1)), FrameFault::mac);
    EXPECT_EQ(fault_under(made(secret, Direction::from_joiner, 1, 3)), FrameFault::mac);
    EXPECT_EQ(fault_under(made("another secret", Direction::from_joiner, 1, 2)), FrameFault::mac);
}

TEST(Frame, SurvivesRandomBytes) {
    std::mt19937 random(11);
    for (int round = 0; round < 20000; ++round) {
        std::string bytes = payload_of(random() % 200, random());
        // Half of the inputs begin as a frame does, so that they reach the later checks.
        if (round % 2 == 0) {
            std::string good = frame(FrameType::data, std::string(random() % 64, 'x'));
            // At least the byte at the cut is wrong.
            const std::size_t cut = random() % good.size();
            const char wrong = static_cast<char>(~good[cut]);
            good.resize(cut);
            bytes = good + wrong + bytes;
        }
        FrameDecoder decoder(key(), 64);
        EXPECT_NE(decode(bytes, 1 + random() % 50, decoder), FrameDecoder::State::complete);
    }
}

// ---- handshake ----

Claim claim_of(std::uint32_t rank, std::uint32_t ranks) {
    return {.rank = rank, .ranks = ranks, .port = 77, .build = "a build"};
}

constexpr Clock::time_point now{std::chrono::hours(5)};

struct Meeting {
    Cookies own_cookies;
    ServerHandshake server;
    ClientHandshake client;

    explicit Meeting(std::string_view theirs = secret) : Meeting(theirs, own_cookies) {}
    Meeting(std::string_view theirs, Cookies &cookies)
        : server(secret, cookies), client(theirs, claim_of(3, 8)) {}

    ServerHandshake::State send_to_server(const std::string &bytes, std::string &reply) {
        std::string_view rest = bytes;
        return server.read(rest, reply, now);
    }
    ClientHandshake::State send_to_client(const std::string &bytes) {
        std::string_view rest = bytes;
        return client.read(rest);
    }
};

TEST(Handshake, AcceptsAPeerThatKnowsTheSecret) {
    Meeting meeting;
    std::string reply;
    EXPECT_EQ(meeting.send_to_server(meeting.client.hello(), reply),
              ServerHandshake::State::waiting);
    EXPECT_EQ(meeting.send_to_client(reply), ClientHandshake::State::authenticated);
    EXPECT_EQ(meeting.send_to_server(meeting.client.join(), reply), ServerHandshake::State::joined);
    EXPECT_EQ(meeting.server.claim(), claim_of(3, 8));

    SessionKeys root = meeting.server.take_keys();
    std::string bytes;
    root.encoder.append(bytes, FrameType::welcome, {});
    EXPECT_EQ(meeting.send_to_client(bytes), ClientHandshake::State::welcomed);
    SessionKeys leaf = meeting.client.take_keys();
    for (const auto &[from, to] : {std::pair{&root, &leaf}, std::pair{&leaf, &root}}) {
        const std::string payload = payload_of(max_payload_bytes);
        std::string sent;
        from->encoder.append(sent, FrameType::data, payload);
        std::string_view rest = sent;
        ASSERT_EQ(to->decoder.read(rest), FrameDecoder::State::complete);
        EXPECT_EQ(to->decoder.payload(), payload);
    }
}

TEST(Handshake, DeliversTheReasonOfARefusal) {
    Meeting meeting;
    std::string reply;
    meeting.send_to_server(meeting.client.hello(), reply);
    meeting.send_to_client(reply);
    meeting.send_to_server(meeting.client.join(), reply);
    SessionKeys root = meeting.server.take_keys();
    std::string bytes;
    root.encoder.append(bytes, FrameType::failure,
                        failure_payload(whole_session, VESCOMM_ERROR_MISMATCH, "for this reason"));
    EXPECT_EQ(meeting.send_to_client(bytes), ClientHandshake::State::refused);
    EXPECT_EQ(meeting.client.refusal().status, VESCOMM_ERROR_MISMATCH);
    EXPECT_STREQ(meeting.client.refusal().what(), "for this reason");
}

TEST(Handshake, DistinguishesAnotherSecretFromAForeignProtocol) {
    Meeting meeting("another secret");
    std::string reply;
    meeting.send_to_server(meeting.client.hello(), reply);
    EXPECT_EQ(meeting.send_to_client(reply), ClientHandshake::State::wrong_secret);

    Meeting foreign;
    EXPECT_EQ(foreign.send_to_client("SSH-2.0-OpenSSH_9.2p1\r\n"),
              ClientHandshake::State::not_vescomm);
    Meeting other_version;
    std::string bytes = other_version.client.hello();
    bytes[4] = 9;
    EXPECT_EQ(other_version.send_to_client(bytes), ClientHandshake::State::other_version);
    EXPECT_EQ(other_version.client.version(), 9u);
}

TEST(Handshake, ReportsItsVersionToAPeerOfAnotherVersion) {
    Meeting meeting;
    std::string hello = meeting.client.hello();
    hello[4] = 9;
    std::string reply;
    EXPECT_EQ(meeting.send_to_server(hello, reply), ServerHandshake::State::rejected);
    ASSERT_GT(reply.size(), 4u);
    EXPECT_EQ(reply[4], frame_version);
}

TEST(Handshake, RefusesEveryRecordedOrReflectedFrame) {
    Meeting recorded;
    std::string reply;
    const std::string hello = recorded.client.hello();
    recorded.send_to_server(hello, reply);
    recorded.send_to_client(reply);
    const std::string join = recorded.client.join();

    std::string answer;
    Meeting replayed;
    EXPECT_EQ(replayed.send_to_server(hello, answer), ServerHandshake::State::waiting);
    EXPECT_EQ(replayed.send_to_server(join, answer), ServerHandshake::State::rejected);

    Meeting reflected;
    answer.clear();
    reflected.send_to_server(reflected.client.hello(), answer);
    std::string back;
    EXPECT_EQ(reflected.send_to_server(answer, back), ServerHandshake::State::rejected);
    EXPECT_TRUE(back.empty());

    Meeting mirror;
    EXPECT_EQ(mirror.send_to_client(mirror.client.hello()), ClientHandshake::State::not_vescomm);

    Meeting replayed_at_client;
    replayed_at_client.client.hello();
    EXPECT_EQ(replayed_at_client.send_to_client(reply), ClientHandshake::State::wrong_secret);
}

// Runs a connection up to the listener's proof; then the listener closes it for lack of capacity.
std::string first_connection(Meeting &meeting) {
    std::string reply;
    meeting.send_to_server(meeting.client.hello(), reply);
    EXPECT_EQ(meeting.send_to_client(reply), ClientHandshake::State::authenticated);
    return reply;
}

TEST(Handshake, ResumesWithACookieInOneMessage) {
    Cookies cookies;
    Meeting meeting(secret, cookies);
    first_connection(meeting);
    ServerHandshake second(secret, cookies);
    const std::string flight = meeting.client.hello();
    std::string_view bytes = flight;
    std::string reply;
    ASSERT_EQ(second.read(bytes, reply, now), ServerHandshake::State::joined);
    EXPECT_TRUE(reply.empty());
    EXPECT_EQ(second.claim(), claim_of(3, 8));
    SessionKeys root = second.take_keys();
    root.encoder.append(reply, FrameType::welcome, "welcome");
    EXPECT_EQ(meeting.send_to_client(reply), ClientHandshake::State::welcomed);
    EXPECT_EQ(meeting.client.welcome(), "welcome");

    // A replay of the same bytes must not join.
    ServerHandshake third(secret, cookies);
    bytes = flight;
    EXPECT_EQ(third.read(bytes, reply, now), ServerHandshake::State::rejected);
}

TEST(Handshake, RejectsCookiesOfAnotherListenerAndExpiredOnes) {
    Cookies cookies, others;
    Meeting meeting(secret, cookies);
    first_connection(meeting);
    const std::string flight = meeting.client.hello();
    std::string reply;
    const auto read = [&](Cookies &at, Clock::time_point when) {
        ServerHandshake server(secret, at);
        std::string_view bytes = flight;
        return server.read(bytes, reply, when);
    };
    EXPECT_EQ(read(others, now), ServerHandshake::State::rejected);
    EXPECT_EQ(read(cookies, now + std::chrono::minutes(3)), ServerHandshake::State::rejected);
    EXPECT_EQ(read(cookies, now + std::chrono::seconds(59)), ServerHandshake::State::joined);
    EXPECT_TRUE(reply.empty());
}

TEST(Handshake, RejectsAMalformedClaim) {
    const std::string good = encode(claim_of(1, 2));
    Claim claim;
    EXPECT_TRUE(read_claim(good, claim));
    EXPECT_EQ(claim, claim_of(1, 2));
    for (std::size_t size = 0; size + 7 < good.size(); ++size)
        EXPECT_FALSE(read_claim(good.substr(0, size), claim)) << size;
    EXPECT_FALSE(read_claim("\x03" + good.substr(1), claim));
    EXPECT_FALSE(read_claim(good + std::string(max_build_bytes, 'x'), claim));
}

TEST(Handshake, SendsNoReplyToOtherFramesThanHello) {
    for (const FrameType type : {FrameType::join, FrameType::data, FrameType::failure}) {
        FrameEncoder encoder(open_key());
        std::string bytes;
        encoder.append(bytes, type, std::string(8, 'x'));
        Meeting meeting;
        std::string reply;
        EXPECT_EQ(meeting.send_to_server(bytes, reply), ServerHandshake::State::rejected);
        EXPECT_TRUE(reply.empty());
    }
}

// ---- gathering ----

ContributionHead head(std::uint64_t sequence, std::uint64_t bytes, std::string label = "call") {
    return {sequence, bytes, std::move(label)};
}

TEST(Gathering, CompletesOnceEveryByteHasArrived) {
    Gathering gathering(3);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        EXPECT_FALSE(gathering.begin(2, head(round, 2)));
        EXPECT_FALSE(gathering.begin(0, head(round, 0)));
        EXPECT_EQ(gathering.missing(), (std::vector<int>{1, 2}));
        EXPECT_FALSE(gathering.add(2, "a"));
        EXPECT_FALSE(gathering.begin(1, head(round, 3)));
        EXPECT_FALSE(gathering.add(1, "xyz"));
        EXPECT_FALSE(gathering.complete());
        EXPECT_FALSE(gathering.add(2, "b"));
        ASSERT_TRUE(gathering.complete());
        EXPECT_EQ(gathering.take(), (std::vector<std::string>{"", "xyz", "ab"}));
    }
}

TEST(Gathering, NamesTwoRanksAndBothLabelsWhenTheyDiffer) {
    Gathering gathering(4);
    EXPECT_FALSE(gathering.begin(3, head(1, 0, "buffer \"a\" creation")));
    const auto error = gathering.begin(1, head(1, 0, "barrier"));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status, VESCOMM_ERROR_MISMATCH);
    const std::string text = error->what();
    for (const char *part : {"rank 3", "rank 1", "buffer \"a\" creation", "barrier"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Gathering, RejectsTotalsAboveTheLimitWithoutOverflow) {
    for (const std::uint64_t bytes : {max_gather_bytes, ~std::uint64_t{0}}) {
        Gathering gathering(2);
        EXPECT_FALSE(gathering.begin(0, head(1, 1)));
        const auto error = gathering.begin(1, head(1, bytes));
        ASSERT_TRUE(error);
        EXPECT_EQ(error->status, VESCOMM_ERROR_INVALID_ARGUMENT);
    }
}

TEST(Gathering, RejectsViolationsOfTheProtocol) {
    Gathering gathering(2);
    EXPECT_TRUE(gathering.add(0, "x")) << "bytes before their head";
    EXPECT_TRUE(gathering.begin(0, head(2, 0))) << "a later call";
    EXPECT_FALSE(gathering.begin(0, head(1, 2)));
    EXPECT_TRUE(gathering.begin(0, head(1, 2))) << "twice";
    EXPECT_TRUE(gathering.add(0, "xyz")) << "more bytes than announced";
    EXPECT_FALSE(gathering.add(0, "xy"));
    EXPECT_TRUE(gathering.add(0, "x")) << "more bytes than announced";
}

TEST(Gathering, ReaderTakesPiecesOfAnySize) {
    const std::vector<std::string> contributions{"", "one", "", std::string(100, 'y'), ""};
    std::string bytes = encode_sizes(contributions);
    for (const std::string &contribution : contributions) bytes += contribution;
    for (std::size_t step = 1; step <= bytes.size(); ++step) {
        GatherReader reader(5);
        for (std::size_t at = 0; at < bytes.size(); at += step) {
            EXPECT_FALSE(reader.complete());
            ASSERT_TRUE(reader.add(std::string_view(bytes).substr(at, step)));
        }
        ASSERT_TRUE(reader.complete());
        EXPECT_FALSE(reader.add("x"));
        EXPECT_EQ(reader.take(), contributions);
    }
}

TEST(Gathering, ReaderRejectsImpossibleSizes) {
    std::string table;
    put_number(table, max_gather_bytes);
    put_number(table, ~std::uint64_t{0});
    GatherReader reader(2);
    EXPECT_FALSE(reader.add(table));
}

TEST(Gathering, ListsRanksForPeople) {
    EXPECT_EQ(list_ranks(std::vector{4}), "rank 4");
    EXPECT_EQ(list_ranks(std::vector{1, 2}), "ranks 1 and 2");
    EXPECT_EQ(list_ranks(std::vector{1, 2, 5}), "ranks 1, 2 and 5");
    const std::vector<int> many(20, 7);
    EXPECT_EQ(list_ranks(many), "ranks 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7 and 4 more");
    EXPECT_EQ(quote("a"), "\"a\"");
    EXPECT_LT(quote(std::string(5000, 'a')).size(), 220u);
}

}  // namespace
}  // namespace vescomm::internal
