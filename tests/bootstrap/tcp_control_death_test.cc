// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are processes, and one of them dies: before, during and after whatever they do together.
#include <gtest/gtest.h>

#include "bootstrap/gathering.h"
#include "bootstrap/tcp_control.h"
#include "bootstrap/tcp_join.h"
#include "tcp_ranks.h"

namespace vescomm {
namespace {

using namespace testing_support;

enum class Phase { idle, all_others_gather, it_gathers, leaving };

constexpr Phase phases[] = {Phase::idle, Phase::all_others_gather, Phase::it_gathers,
                            Phase::leaving};

// One rank, in its own process. Says "ready" once it is about to do what the phase wants, and what
// its listener heard.
void live(const Place &place, int rank, bool victim, Phase phase, const RankProcess::Say &say) {
    const Outcome outcome = outcome_of([&] {
        const auto control = connect_tcp_control(place.options(rank), generous());
        Ear ear;
        control->listen(ear.listener());
        control->all_gather("warm-up", std::to_string(rank), generous());
        say("ready");
        const bool gathers =
            phase == Phase::all_others_gather ? !victim : victim && phase == Phase::it_gathers;
        Outcome thrown;
        if (gathers) thrown = outcome_of([&] { control->all_gather("call", "x", generous()); });
        if (phase == Phase::leaving && !victim) control->leave(generous());
        const Outcome heard = ear.wait();
        if (!heard) return say("heard nothing");
        say(std::to_string(heard->first) + " " + heard->second);
        // Whoever waited for the others must have been told the same.
        say(thrown.has_value() && *thrown != *heard ? thrown->second : "consistent");
    });
    if (outcome) say("threw " + outcome->second);
}

void expect_everyone_hears(int ranks, int victim, Phase phase, bool reaped) {
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

TEST(TcpControlDeath, IsHeardByEveryOtherRankInEveryPhase) {
    for (const int ranks : {2, 5})
        for (const int victim : {0, 1, ranks - 1})
            for (const Phase phase : phases)
                for (const bool reaped : {false, true})
                    expect_everyone_hears(ranks, victim, phase, reaped);
}

TEST(TcpControlDeath, IsHeardByEightRanks) {
    for (const int victim : {0, 5}) expect_everyone_hears(8, victim, Phase::idle, false);
}

TEST(TcpControlDeath, OfSeveralAtOnceIsHeardByTheRest) {
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

TEST(TcpControlDeath, WithoutGoodbyeIsAFailureEvenWhenOrderly) {
    const Place place(3);
    RankProcess leaving(
        [&](const RankProcess::Say &) { connect_tcp_control(place.options(1), generous()); });
    const auto wait = [&](int rank) {
        return [&place, rank](const RankProcess::Say &say) {
            const Outcome outcome = outcome_of([&] {
                const auto control = connect_tcp_control(place.options(rank), generous());
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

// ---- while ranks are still coming, and in the middle of a contribution: a rank made by hand ----

Joined join_by_hand(const Place &place, int rank) {
    const TcpControlOptions options = place.options(rank);
    return join_rank_0(
        options.addresses, options.secret,
        {static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(place.ranks())}, generous());
}

TEST(TcpControlDeath, WhileOthersAreStillAwaitedEndsTheWait) {
    const Place place(3);
    std::optional<Joined> victim;
    Outcome root;
    std::thread thread(
        [&] { root = outcome_of([&] { connect_tcp_control(place.options(0), generous()); }); });
    victim.emplace(join_by_hand(place, 2));
    victim.reset();
    thread.join();
    expect_outcome(root, VESCOMM_ERROR_PEER_FAILED, {"rank 2 of 3", "died"});
}

TEST(TcpControlDeath, LingersToTellThoseWhoComeLater) {
    const Place place(4);
    Outcome root;
    std::thread thread([&] {
        TcpControlOptions options = place.options(0);
        options.linger_seconds = 60;
        root = outcome_of([&] { connect_tcp_control(options, generous()); });
    });
    join_by_hand(place, 2);
    for (const int rank : {1, 3})
        expect_outcome(outcome_of([&] { connect_tcp_control(place.options(rank), generous()); }),
                       VESCOMM_ERROR_PEER_FAILED, {"rank 2 of 4"});
    thread.join();
    expect_outcome(root, VESCOMM_ERROR_PEER_FAILED, {"rank 2 of 4"});
}

void send_all(const Joined &joined, const std::string &bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t sent =
            send(joined.socket.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
        ASSERT_GT(sent, 0);
        at += static_cast<std::size_t>(sent);
    }
}

// Two ranks: the second is made by hand and says something, then disappears.
Outcome gather_with(const std::function<void(Joined &)> &say) {
    const Place place(2);
    Outcome outcome;
    std::thread thread([&] {
        const auto control = connect_tcp_control(place.options(0), generous());
        outcome = outcome_of([&] { control->all_gather("call", "mine", generous()); });
    });
    {
        Joined joined = join_by_hand(place, 1);
        say(joined);
    }
    thread.join();
    return outcome;
}

TEST(TcpControlDeath, InTheMiddleOfAContributionIsNoticed) {
    for (const std::size_t cut : {1u, 10u, 1000u, 300000u}) {
        const Outcome outcome = gather_with([&](Joined &joined) {
            std::string bytes;
            joined.session.encoder.append(bytes, FrameType::contribution,
                                          encode({1, 1000000, "call"}));
            for (int i = 0; i < 3; ++i)
                joined.session.encoder.append(bytes, FrameType::data, std::string(200000, 'x'));
            bytes.resize(bytes.size() - cut);
            send_all(joined, bytes);
        });
        expect_outcome(outcome, VESCOMM_ERROR_PEER_FAILED, {"rank 1 of 2"});
    }
}

TEST(TcpControlDeath, SayingNonsenseWithTheRightKeyIsAnErrorThatNamesTheRank) {
    const auto say = [](FrameType type, const std::string &payload) {
        return gather_with([&](Joined &joined) {
            std::string bytes;
            joined.session.encoder.append(bytes, type, payload);
            send_all(joined, bytes);
            // Until rank 0 has made up its mind.
            char ignored;
            while (recv(joined.socket.get(), &ignored, 1, 0) > 0) {
            }
        });
    };
    for (const auto &[type, payload] : {std::pair{FrameType::contribution, std::string("short")},
                                        std::pair{FrameType::contribution, encode({7, 1, "call"})},
                                        std::pair{FrameType::data, std::string("unannounced")},
                                        std::pair{FrameType::expired, std::string("x")},
                                        std::pair{FrameType::welcome, std::string()}})
        expect_outcome(say(type, payload), VESCOMM_ERROR_INTERNAL, {"rank 1", "protocol"});
    expect_outcome(say(FrameType::contribution, encode({1, ~std::uint64_t{0}, "call"})),
                   VESCOMM_ERROR_INVALID_ARGUMENT, {"rank 1", "takes 1073741824"});
    expect_outcome(say(FrameType::failure, "x"), VESCOMM_ERROR_INTERNAL, {"reason"});
}

TEST(TcpControlDeath, TamperingWithAConnectionIsNoticed) {
    const Outcome outcome = gather_with([&](Joined &joined) {
        std::string bytes;
        joined.session.encoder.append(bytes, FrameType::contribution, encode({1, 0, "call"}));
        bytes[25] = static_cast<char>(bytes[25] ^ 1);
        send_all(joined, bytes);
        char ignored;
        while (recv(joined.socket.get(), &ignored, 1, 0) > 0) {
        }
    });
    expect_outcome(outcome, VESCOMM_ERROR_PEER_FAILED, {"rank 1 of 2", "wrong seal"});
}

// ---- silence ----

TEST(TcpControlSilence, OfAStoppedProcessIsNoticed) {
    for (const int victim : {0, 1}) {
        const Place place(3);
        std::vector<RankProcess> processes;
        for (int rank = 0; rank < 3; ++rank)
            processes.emplace_back([&](const RankProcess::Say &say) {
                const Outcome outcome = outcome_of([&] {
                    TcpControlOptions options = place.options(rank);
                    options.heartbeat_seconds = 0.05;
                    options.silence_seconds = 1;
                    const auto control = connect_tcp_control(options, generous());
                    Ear ear;
                    control->listen(ear.listener());
                    say("ready");
                    say(ear.wait().value_or(std::pair(VESCOMM_OK, "nothing")).second);
                });
                if (outcome) say("threw " + outcome->second);
            });
        for (RankProcess &process : processes) ASSERT_EQ(process.line(), "ready");
        processes[victim].signal(SIGSTOP);
        for (int rank = 0; rank < 3; ++rank) {
            if (rank == victim) continue;
            const std::string line = processes[rank].line();
            EXPECT_EQ(line.rfind("rank " + std::to_string(victim) + " at", 0), 0u) << line;
            EXPECT_NE(line.find("silent"), std::string::npos) << line;
        }
    }
}

TEST(TcpControlSilence, OfABusyProgramIsNone) {
    // No call for many times the silence; only the background threads speak.
    const Place place(3);
    std::vector<Ear> ears(3);
    run_threads(
        place,
        [&](Control &control) {
            control.listen(ears[control.rank()].listener());
            const Deadline busy = Deadline::after(2);
            while (!busy.expired()) std::this_thread::yield();
            control.all_gather("call", "x", generous());
            control.leave(generous());
        },
        [](TcpControlOptions &options) {
            options.heartbeat_seconds = 0.05;
            options.silence_seconds = 0.5;
        });
    for (const Ear &ear : ears) EXPECT_EQ(ear.calls(), 0);
}

}  // namespace
}  // namespace vescomm
