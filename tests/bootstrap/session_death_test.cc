// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are processes, and one of them dies before, during or after their common operations.
#include <gtest/gtest.h>

#include "bootstrap/gathering.h"
#include "bootstrap/session.h"
#include "session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

enum class Phase { idle, all_others_gather, it_gathers, leaving };

constexpr Phase phases[] = {Phase::idle, Phase::all_others_gather, Phase::it_gathers,
                            Phase::leaving};

// Body of one rank's process. Sends "ready" when it is about to act as the phase requires, then
// what its listener received.
void live(const Place &place, int rank, bool victim, Phase phase, const RankProcess::Say &say) {
    const Outcome outcome = outcome_of([&] {
        const auto control = take_part(place.options(rank), generous());
        FailureObserver observer;
        control->listen(observer.listener());
        control->all_gather("warm-up", std::to_string(rank), generous());
        say("ready");
        const bool gathers =
            phase == Phase::all_others_gather ? !victim : victim && phase == Phase::it_gathers;
        Outcome thrown;
        if (gathers) thrown = outcome_of([&] { control->all_gather("call", "x", generous()); });
        if (phase == Phase::leaving && !victim) control->leave(generous());
        const Outcome observed = observer.wait();
        if (!observed) return say("observed nothing");
        say(std::to_string(observed->first) + " " + observed->second);
        // A rank that waited for the others must have received the same failure.
        say(thrown.has_value() && *thrown != *observed ? thrown->second : "consistent");
    });
    if (outcome) say("threw " + outcome->second);
}

void expect_report_to_all(int ranks, int victim, Phase phase, bool reaped) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, victim " << victim << ", phase "
                                    << static_cast<int>(phase) << (reaped ? ", reaped" : ""));
    const Place place(ranks);
    std::vector<RankProcess> processes;
    for (int rank = 0; rank < ranks; ++rank)
        processes.emplace_back(
            [&](const RankProcess::Say &say) { live(place, rank, rank == victim, phase, say); });
    for (RankProcess &process : processes) ASSERT_EQ(process.line(), "ready");
    processes[victim].signal(SIGKILL);
    if (reaped) processes[victim].reap();
    for (int rank = 0; rank < ranks; ++rank) {
        if (rank == victim) continue;
        const std::string line = processes[rank].line();
        EXPECT_EQ(line.rfind(std::to_string(VESCOMM_ERROR_PEER_FAILED) + " rank " +
                                 std::to_string(victim) + " of",
                             0),
                  0u)
            << line;
        EXPECT_EQ(processes[rank].line(), "consistent");
    }
}

TEST(SessionDeath, IsReportedToEveryOtherRankInEveryPhase) {
    for (const int ranks : {2, 5})
        for (const int victim : {0, 1, ranks - 1})
            for (const Phase phase : phases)
                for (const bool reaped : {false, true})
                    expect_report_to_all(ranks, victim, phase, reaped);
}

TEST(SessionDeath, IsReportedToEightRanks) {
    for (const int victim : {0, 5}) expect_report_to_all(8, victim, Phase::idle, false);
}

TEST(SessionDeath, OfSeveralRanksAtOnceIsReportedToTheRest) {
    const Place place(6);
    std::vector<RankProcess> processes;
    for (int rank = 0; rank < 6; ++rank)
        processes.emplace_back(
            [&](const RankProcess::Say &say) { live(place, rank, false, Phase::idle, say); });
    for (RankProcess &process : processes) ASSERT_EQ(process.line(), "ready");
    for (const int victim : {2, 3, 4}) processes[victim].signal(SIGKILL);
    const std::string first = processes[0].line();
    EXPECT_NE(first.find("died"), std::string::npos) << first;
    for (const int rank : {1, 5}) EXPECT_EQ(processes[rank].line(), first);
}

TEST(SessionDeath, OrderlyExitWithoutGoodbyeIsAFailure) {
    const Place place(3);
    RankProcess leaving([&](const RankProcess::Say &) { take_part(place.options(1), generous()); });
    const auto wait = [&](int rank) {
        return [&place, rank](const RankProcess::Say &say) {
            const Outcome outcome = outcome_of([&] {
                const auto control = take_part(place.options(rank), generous());
                control->leave(generous());
                control->all_gather("after", "", generous());
            });
            say(outcome ? outcome->second : "nothing");
        };
    };
    RankProcess root(wait(0)), other(wait(2));
    for (RankProcess *process : {&root, &other}) {
        const std::string line = process->line();
        EXPECT_NE(line.find("rank 1 of 3"), std::string::npos) << line;
        EXPECT_NE(line.find("without leaving"), std::string::npos) << line;
    }
}

// ---- failures while ranks are joining or contributing; the test plays a rank by hand ----

struct Joined {
    Descriptor socket;
    SessionKeys keys;
};

void send_all(const Joined &joined, const std::string &bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t sent =
            send(joined.socket.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
        ASSERT_GT(sent, 0);
        at += static_cast<std::size_t>(sent);
    }
}

Joined join_by_hand(const Place &place, int rank) {
    const SessionOptions options = place.options(rank);
    ClientHandshake client(options.secret,
                           Claim{.rank = static_cast<std::uint32_t>(rank),
                                 .ranks = static_cast<std::uint32_t>(place.ranks())});
    Joined joined{connect_to(place.address()),
                  {FrameEncoder(open_key()), FrameDecoder(open_key(), 0)}};
    send_all(joined, client.hello());
    for (;;) {
        char buffer[1];
        if (recv(joined.socket.get(), buffer, 1, 0) != 1) abort();
        std::string_view bytes(buffer, 1);
        const auto state = client.read(bytes);
        if (state == ClientHandshake::State::authenticated) send_all(joined, client.join());
        if (state == ClientHandshake::State::welcomed) break;
        if (state == ClientHandshake::State::refused) abort();
    }
    joined.keys = client.take_keys();
    return joined;
}

// The group of all ranks, with the id that the second of two processes uses to open it.
const GroupId all_ranks = derive_group(whole_session, "all 0 ");

std::string for_all_ranks(const std::string &rest) {
    std::string payload;
    put_group(payload, all_ranks);
    return payload + rest;
}

std::string open_payload() {
    std::string rest;
    for (const std::uint32_t number : {2u, 0u, 1u}) put_number(rest, number);
    return for_all_ranks(rest + "communicator creation");
}

TEST(SessionDeath, BeforeAllRanksHaveJoinedEndsTheWait) {
    const Place place(3);
    std::optional<Joined> victim;
    Outcome root;
    std::thread thread(
        [&] { root = outcome_of([&] { take_part(place.options(0), generous()); }); });
    victim.emplace(join_by_hand(place, 2));
    victim.reset();
    thread.join();
    expect_outcome(root, VESCOMM_ERROR_PEER_FAILED, {"rank 2 of 3", "died"});
}

TEST(SessionDeath, LingersToNotifyRanksThatComeLater) {
    const Place place(4);
    Outcome root;
    std::thread thread([&] {
        SessionOptions options = place.options(0);
        options.linger_seconds = 60;
        root = outcome_of([&] { take_part(options, generous()); });
    });
    join_by_hand(place, 2);
    for (const int rank : {1, 3})
        expect_outcome(outcome_of([&] { take_part(place.options(rank), generous()); }),
                       VESCOMM_ERROR_PEER_FAILED, {"rank 2 of 4"});
    thread.join();
    expect_outcome(root, VESCOMM_ERROR_PEER_FAILED, {"rank 2 of 4"});
}

// Waits until rank 0 has detected the failure: it sends a failure or closes the connection.
void wait_for_failure(Joined &joined) {
    for (char byte = 0; recv(joined.socket.get(), &byte, 1, 0) == 1;) {
        std::string_view bytes(&byte, 1);
        if (joined.keys.decoder.read(bytes) == FrameDecoder::State::complete &&
            joined.keys.decoder.type() == FrameType::failure)
            return;
    }
}

// Runs two ranks; the test plays the second one, which sends something and then disappears.
Outcome gather_with(const std::function<void(Joined &)> &say) {
    const Place place(2);
    Outcome outcome;
    std::thread thread([&] {
        outcome = outcome_of([&] {
            take_part(place.options(0), generous())->all_gather("call", "mine", generous());
        });
    });
    {
        Joined joined = join_by_hand(place, 1);
        std::string bytes;
        joined.keys.encoder.append(bytes, FrameType::open, open_payload());
        send_all(joined, bytes);
        say(joined);
    }
    thread.join();
    return outcome;
}

TEST(SessionDeath, DuringAContributionIsDetected) {
    for (const std::size_t cut : {1u, 10u, 1000u, 300000u}) {
        const Outcome outcome = gather_with([&](Joined &joined) {
            std::string bytes;
            joined.keys.encoder.append(bytes, FrameType::contribution,
                                       for_all_ranks(encode({1, 1000000, "call"})));
            for (int i = 0; i < 3; ++i)
                joined.keys.encoder.append(bytes, FrameType::data,
                                           for_all_ranks(std::string(200000, 'x')));
            bytes.resize(bytes.size() - cut);
            send_all(joined, bytes);
        });
        expect_outcome(outcome, VESCOMM_ERROR_PEER_FAILED, {"rank 1 of 2"});
    }
}

TEST(SessionDeath, ProtocolViolationWithTheRightKeyNamesTheRank) {
    const auto say = [](FrameType type, const std::string &payload) {
        return gather_with([&](Joined &joined) {
            std::string bytes;
            joined.keys.encoder.append(bytes, type, for_all_ranks(payload));
            send_all(joined, bytes);
            wait_for_failure(joined);
        });
    };
    for (const auto &[type, payload] : {std::pair{FrameType::contribution, std::string("short")},
                                        std::pair{FrameType::expired, std::string("x")},
                                        std::pair{FrameType::welcome, std::string()}})
        expect_outcome(say(type, payload), VESCOMM_ERROR_PEER_FAILED, {"rank 1", "protocol"});
    for (const auto &[type, payload] : {std::pair{FrameType::contribution, encode({7, 1, "call"})},
                                        std::pair{FrameType::data, std::string("unannounced")}})
        expect_outcome(say(type, payload), VESCOMM_ERROR_INTERNAL, {"rank 1", "protocol"});
    expect_outcome(say(FrameType::contribution, encode({1, ~std::uint64_t{0}, "call"})),
                   VESCOMM_ERROR_INVALID_ARGUMENT, {"rank 1", "takes 1073741824"});
    expect_outcome(say(FrameType::failure, "x"), VESCOMM_ERROR_INTERNAL, {"reason"});
}

TEST(SessionDeath, TamperingWithAConnectionIsDetected) {
    const Outcome outcome = gather_with([&](Joined &joined) {
        std::string bytes;
        joined.keys.encoder.append(bytes, FrameType::contribution,
                                   for_all_ranks(encode({1, 0, "call"})));
        bytes[25] = static_cast<char>(bytes[25] ^ 1);
        send_all(joined, bytes);
        wait_for_failure(joined);
    });
    expect_outcome(outcome, VESCOMM_ERROR_PEER_FAILED, {"rank 1 of 2", "wrong MAC"});
}

// ---- silence ----

TEST(SessionSilence, OfAStoppedProcessIsDetected) {
    for (const int victim : {0, 1}) {
        const Place place(3);
        std::vector<RankProcess> processes;
        for (int rank = 0; rank < 3; ++rank)
            processes.emplace_back([&](const RankProcess::Say &say) {
                const Outcome outcome = outcome_of([&] {
                    SessionOptions options = place.options(rank);
                    options.heartbeat_seconds = 0.05;
                    options.silence_seconds = 1;
                    const auto control = take_part(options, generous());
                    FailureObserver observer;
                    control->listen(observer.listener());
                    say("ready");
                    say(observer.wait().value_or(std::pair(VESCOMM_OK, "nothing")).second);
                });
                if (outcome) say("threw " + outcome->second);
            });
        for (RankProcess &process : processes) ASSERT_EQ(process.line(), "ready");
        processes[victim].signal(SIGSTOP);
        for (int rank = 0; rank < 3; ++rank) {
            if (rank == victim) continue;
            const std::string line = processes[rank].line();
            EXPECT_EQ(line.rfind("rank " + std::to_string(victim) + " of 3 at", 0), 0u) << line;
            EXPECT_NE(line.find("silent"), std::string::npos) << line;
        }
    }
}

TEST(SessionSilence, ABusyProgramIsNotSilent) {
    // No call for many times the silence: only the background threads send.
    const Place place(3);
    std::vector<FailureObserver> observers(3);
    run_threads(
        place,
        [&](Control &control) {
            control.listen(observers[control.rank()].listener());
            const Deadline busy = Deadline::after(2);
            while (!busy.expired()) std::this_thread::yield();
            control.all_gather("call", "x", generous());
            control.leave(generous());
        },
        [](SessionOptions &options) {
            options.heartbeat_seconds = 0.05;
            options.silence_seconds = 0.5;
        });
    for (const FailureObserver &observer : observers) EXPECT_EQ(observer.calls(), 0);
}

}  // namespace
}  // namespace vescomm::internal
