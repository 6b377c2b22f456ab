// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Survivors of a failure distinguish the death of another survivor from a lost connection. Runs
// over a simulated network.
#include <gtest/gtest.h>

#include <optional>

#include "bootstrap/acceptor.h"
#include "bootstrap/hub_search.h"
#include "bootstrap/session_core.h"
#include "simulated_network.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

constexpr std::string_view secret = "the secret of the test";
const TcpAddress place{SimulatedNetwork::host(0), 7000};

// Process 0 listens; process 1 searches for it once.
struct Meeting {
    Meeting() {
        acceptor.emplace(leader, secret,
                         [this](Acceptor::Joined what) { joined = std::move(what); });
        world.at(world.now(), 0, [this] { acceptor->listen(place); });
        world.at(world.now() + of_seconds(0.01), 1, [this] {
            const Claim claim{.purpose = Claim::Purpose::regroup, .rank = 1, .ranks = 2};
            search.emplace(
                follower, std::vector{place}, secret, claim, HubSearch::Limits{.once = true},
                HubSearch::Events{[this](HubSearch::Found) { found = true; },
                                  [this](const Error &error) { failure = error; }, nullptr});
            tick();
        });
    }

    void tick() {
        if (failure) return;
        const Clock::time_point next = search->tick();
        timer = follower.at(next, [this] { tick(); });
    }
    void run(double seconds) {
        world.run(seconds, [](int) {});
    }

    SimulatedWorld world{1};
    SimulatedNetwork leader{world, 0}, follower{world, 1};
    std::optional<Acceptor> acceptor;
    std::optional<HubSearch> search;
    std::unique_ptr<Timer> timer;
    std::optional<Acceptor::Joined> joined;
    std::optional<Error> failure;
    bool found = false;
};

TEST(SurvivorsMeeting, LostConnectionIsNotADeath) {
    for (int moment = 0; moment < 100; ++moment) {
        Meeting meeting;
        meeting.world.max_latency = 0.01;
        const double when = 0.01 + 1e-3 * moment;
        meeting.world.at(meeting.world.now() + of_seconds(when), -1, [&] {
            // After the join, the end of the connection ends the leader's wait instead.
            if (!meeting.joined) meeting.world.reset(1, 0);
        });
        meeting.run(5);
        EXPECT_FALSE(meeting.failure) << moment << ": " << meeting.failure->what();
        EXPECT_TRUE(meeting.joined) << moment;
    }
}

TEST(SurvivorsMeeting, EndedProcessIsDetected) {
    for (int moment = 0; moment < 100; ++moment) {
        Meeting meeting;
        meeting.world.max_latency = 0.01;
        meeting.world.at(meeting.world.now() + of_seconds(0.005 + 1e-3 * moment), -1,
                         [&] { meeting.world.end(0); });
        meeting.run(20);
        ASSERT_TRUE(meeting.failure) << moment;
        EXPECT_EQ(meeting.failure->status, VESCOMM_ERROR_PEER_FAILED) << moment;
    }
}

TEST(SurvivorsMeeting, DeathBetweenCountingAndBeginningIsReported) {
    Meeting meeting;
    meeting.run(5);
    ASSERT_TRUE(meeting.joined);
    auto link = std::make_unique<Link>(meeting.leader, std::move(meeting.joined->stream),
                                       std::move(meeting.joined->keys));
    link->start({[](FrameType, std::string_view) {}, [](const std::string &) {}}, {});
    meeting.world.end(1);
    meeting.run(10);
    ASSERT_FALSE(link->open());
    SessionOptions options;
    options.ranks = 2;
    options.secret = secret;
    SessionCore core(meeting.leader, options, [] {});
    std::vector<SessionCore::Survivor> survivors;
    survivors.push_back({meeting.joined->claim, std::move(link)});
    core.begin_hub(std::move(survivors), {});
    meeting.run(11);
    ASSERT_TRUE(core.failure());
    EXPECT_EQ(core.failure()->status, VESCOMM_ERROR_PEER_FAILED);
    EXPECT_NE(std::string(core.failure()->what()).find("rank 1 of 2"), std::string::npos);
}

}  // namespace
}  // namespace vescomm::internal
