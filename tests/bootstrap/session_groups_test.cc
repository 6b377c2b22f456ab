// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Groups of a session other than the group of all ranks: subgroups, groups of survivors, and a
// single process. Ranks are threads; ranks that die are processes.
#include <gtest/gtest.h>

#include <latch>
#include <set>
#include <vector>

#include "session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

using Texts = std::vector<std::string>;

void expect_nothing_wrong(const std::vector<Outcome> &outcomes) {
    for (const Outcome &outcome : outcomes) EXPECT_FALSE(outcome) << outcome->second;
}

// ---- notes ----

// Returns the next notes of a rank.
std::vector<std::pair<int, std::string>> next_notes(Control &control) {
    const Deadline deadline = generous();
    while (!deadline.expired()) {
        const std::uint64_t seen = control.events();
        if (control.has_notes()) return control.take_notes();
        control.wait_event(seen, deadline.moment());
    }
    return {};
}

TEST(SessionNotes, PassFromRankToRank) {
    const Place place(4);
    expect_nothing_wrong(run_threads(place, [](Control &control) {
        const int rank = control.rank(), next = (rank + 1) % 4, previous = (rank + 3) % 4;
        EXPECT_TRUE(control.send_note(next, "from " + std::to_string(rank)));
        const auto notes = next_notes(control);
        ASSERT_EQ(notes.size(), 1U);
        EXPECT_EQ(notes[0], std::pair(previous, "from " + std::to_string(previous)));
        control.all_gather("after", "", generous());
        // A rank that has left gets no notes, and none is an error.
        control.start_leave();
        control.send_note(next, "too late");
        control.leave(generous());
        EXPECT_FALSE(control.has_notes());
    }));
}

TEST(SessionNotes, ThatBreakTheProtocolEndTheirSender) {
    for (const bool wrong_rank : {true, false}) {
        const Place place(3);
        const auto outcomes = run_threads(place, [&](Control &control) {
            if (control.rank() == 1)
                control.send_note(wrong_rank ? 3 : 2, std::string(wrong_rank ? 1 : 4000, 'a'));
            control.all_gather("after", control.rank() == 1 ? "" : "x", generous());
            control.all_gather("again", "", generous());
        });
        for (const int rank : {0, 2})
            expect_outcome(outcomes[rank], VESCOMM_ERROR_PEER_FAILED,
                           {"rank 1", "broke the protocol"});
    }
}

// ---- subgroups ----

TEST(SessionSubgroup, GathersAmongItsMembersOnly) {
    const Place place(5);
    expect_nothing_wrong(run_threads(place, [](Control &control) {
        const bool even = control.rank() % 2 == 0;
        const std::vector<int> members = even ? std::vector{0, 2, 4} : std::vector{3, 1};
        const auto part = control.subgroup(even ? "even" : "odd", members, generous());
        EXPECT_EQ(part->ranks(), static_cast<int>(members.size()));
        EXPECT_EQ(members[static_cast<std::size_t>(part->rank())], control.rank());
        EXPECT_EQ(part->all_gather("call", std::to_string(control.rank()), generous()),
                  even ? (Texts{"0", "2", "4"}) : (Texts{"3", "1"}));
        EXPECT_EQ(part->membership().processes, members);
        EXPECT_EQ(part->membership().session, control.membership().session);
        EXPECT_NE(part->membership().group, control.membership().group);
        // A failure of one group does not affect another.
        if (!even) part->fail(VESCOMM_ERROR_ABORTED, "the odd ones fail");
        part->leave(generous());
        control.all_gather("after", "", generous());
        control.leave(generous());
    }));
}

TEST(SessionSubgroup, NamesTheMissingMember) {
    const Place place(3);
    std::latch given_up(1);
    const auto outcomes = run_threads(place, [&](Control &control) {
        if (control.rank() != 1) return given_up.wait();
        const Outcome outcome = outcome_of([&] {
            control.subgroup("part", {1, 2}, Deadline::after(0.3));
        });
        given_up.count_down();
        if (outcome) throw Error(outcome->first, outcome->second);
    });
    // Ranks are those of the subgroup.
    expect_outcome(outcomes[1], VESCOMM_ERROR_TIMEOUT,
                   {"rank 1 did not take part", "communicator creation", "rank 0 waited"});
}

TEST(SessionSubgroup, IsRefusedWhenMembersDisagree) {
    const Place place(3);
    std::latch all_refused(3);
    expect_nothing_wrong(run_threads(place, [&](Control &control) {
        const std::vector<int> members =
            control.rank() == 2 ? std::vector{0, 2, 1} : std::vector{0, 1, 2};
        expect_outcome(outcome_of([&] { control.subgroup("part", members, generous()); }),
                       VESCOMM_ERROR_MISMATCH, {"disagree about the members"});
        // Two ranks suffice to disagree. If one of them ended now, the third would report that.
        all_refused.arrive_and_wait();
    }));
}

TEST(SessionSubgroup, IsRefusedWhenAMemberHasEnded) {
    const Place place(3);
    const auto outcomes = run_threads(place, [&](Control &control) {
        FailureObserver observer;
        control.listen(observer.listener());
        if (control.rank() == 1) return;  // without leaving
        expect_outcome(observer.wait(), VESCOMM_ERROR_PEER_FAILED, {"rank 1 of 3"});
        control.subgroup("part", {0, 1, 2}, generous());
    });
    for (const int rank : {0, 2})
        expect_outcome(outcomes[rank], VESCOMM_ERROR_PEER_FAILED, {"rank 1 of 3"});
}

TEST(SessionGroup, RefusesCallsAfterLeaving) {
    const Place place(2);
    expect_nothing_wrong(run_threads(place, [](Control &control) {
        control.leave(generous());
        expect_outcome(outcome_of([&] { control.start_all_gather("late", ""); }),
                       VESCOMM_ERROR_INVALID_ARGUMENT,
                       {"rank " + std::to_string(control.rank()) + " has left", "\"late\""});
        EXPECT_TRUE(control.has_left(1 - control.rank()));
    }));
}

TEST(SessionGroup, DerivesEqualKeysOnAllRanksAndOnePerPurpose) {
    const Place place(3);
    std::vector<FrameKey> keys(3);
    expect_nothing_wrong(run_threads(place, [&](Control &control) {
        keys[control.rank()] = control.derive_key("one");
        EXPECT_NE(control.derive_key("other"), keys[control.rank()]);
        EXPECT_EQ(control.local_address(), "127.0.0.1");
        control.leave(generous());
    }));
    EXPECT_EQ(keys[1], keys[0]);
    EXPECT_EQ(keys[2], keys[0]);
}

// ---- survivors ----

// Processes die after all ranks have met, and threads continue without them.
void expect_survival(int ranks, const std::set<int> &victims) {
    SCOPED_TRACE(testing::PrintToString(victims));
    const Place place(ranks);
    std::vector<RankProcess> processes;
    for (const int victim : victims)
        processes.emplace_back([&place, victim](const RankProcess::Say &say) {
            const auto control = take_part(place.options(victim), generous());
            control->all_gather("warm-up", "", generous());
            say("ready");
            for (;;) pause();
        });
    std::vector<int> expected;
    Texts texts;
    for (int rank = 0; rank < ranks; ++rank)
        if (!victims.contains(rank)) {
            expected.push_back(rank);
            texts.push_back(std::to_string(rank));
        }
    std::vector<Outcome> outcomes(expected.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < expected.size(); ++i)
        threads.emplace_back([&, i] {
            outcomes[i] = outcome_of([&] {
                const auto control = take_part(place.options(expected[i]), generous());
                FailureObserver observer;
                control->listen(observer.listener());
                control->all_gather("warm-up", "", generous());
                expect_outcome(observer.wait(), VESCOMM_ERROR_PEER_FAILED, {"died"});
                std::vector<int> survivors;
                const auto smaller = control->shrink({}, generous(), survivors);
                EXPECT_EQ(survivors, expected);
                EXPECT_EQ(smaller->rank(), static_cast<int>(i));
                EXPECT_EQ(smaller->all_gather("after", texts[i], generous()), texts);
                smaller->leave(generous());
            });
        });
    for (RankProcess &process : processes) EXPECT_EQ(process.line(), "ready");
    for (RankProcess &process : processes) process.signal(SIGKILL);
    for (std::thread &thread : threads) thread.join();
    expect_nothing_wrong(outcomes);
}

TEST(SessionShrink, ContinuesWithoutDeadRanks) {
    expect_survival(4, {0});
    expect_survival(4, {2});
    expect_survival(5, {0, 1});
    expect_survival(3, {1, 2});
}

TEST(SessionShrink, ExcludesALivingRankThatIsNamedAsFailed) {
    const Place place(4);
    std::latch shrunk(3);
    expect_nothing_wrong(run_threads(place, [&](Control &control) {
        if (control.rank() == 1) return shrunk.wait();
        std::vector<int> survivors;
        const auto smaller = control.shrink({1}, generous(), survivors);
        shrunk.count_down();
        EXPECT_EQ(survivors, (std::vector<int>{0, 2, 3}));
        EXPECT_EQ(smaller->ranks(), 3);
        smaller->all_gather("after", "", generous());
        smaller->leave(generous());
    }));
}

// Rank `absent` does not shrink; the others have `seconds` each.
void expect_missing_rank(int absent, const std::vector<double> &seconds) {
    const auto ranks = static_cast<int>(seconds.size());
    const Place place(ranks);
    std::latch given_up(ranks - 1);
    const auto outcomes = run_threads(place, [&](Control &control) {
        if (control.rank() == absent) return given_up.wait();
        std::vector<int> survivors;
        const auto limit = Deadline::after(seconds[static_cast<std::size_t>(control.rank())]);
        const Outcome outcome = outcome_of([&] { control.shrink({}, limit, survivors); });
        given_up.count_down();
        if (outcome) throw Error(outcome->first, outcome->second);
    });
    for (int rank = 0; rank < ranks; ++rank) {
        if (rank == absent) continue;
        expect_outcome(outcomes[rank], VESCOMM_ERROR_TIMEOUT,
                       {"rank " + std::to_string(absent) + " did not take part", "shrinking"});
        EXPECT_EQ(outcomes[rank]->second.find("ranks"), std::string::npos)
            << outcomes[rank]->second;
    }
}

// The leader waits for the last rank, and the others for the leader, with equal deadlines or not.
TEST(SessionShrink, NamesTheMissingRank) {
    expect_missing_rank(2, {1, 1, 0});
    expect_missing_rank(2, {1, 300, 0});
    expect_missing_rank(2, {2, 1, 0});
    // Rank 1 has given up when the deadline of rank 2 passes.
    expect_missing_rank(3, {3, 1, 2, 0});
}

TEST(SessionShrink, NamesTheMissingLeader) {
    expect_missing_rank(0, {0, 1, 1});
}

// ---- alone ----

TEST(LoneControl, IsAGroupOfOne) {
    const auto control = make_lone_control();
    EXPECT_EQ(control->subgroup("part", {0}, generous())->ranks(), 1);
    std::vector<int> survivors;
    EXPECT_EQ(control->shrink({}, generous(), survivors)->ranks(), 1);
    EXPECT_EQ(survivors, std::vector<int>{0});
    EXPECT_EQ(control->local_address(), "");
    EXPECT_NE(control->derive_key("one"), control->derive_key("other"));
    EXPECT_FALSE(control->has_left(0));
    control->on_event({});
    control->wait_event(control->events(), Clock::now());
    expect_outcome(outcome_of([&] { control->descriptors(); }), VESCOMM_ERROR_INTERNAL,
                   {"one rank"});
    expect_outcome(outcome_of([&] { control->expire_all_gather(1); }), VESCOMM_ERROR_INTERNAL,
                   {"waits for nobody"});
    control->leave(generous());
    FailureObserver observer;
    control->listen(observer.listener());
    control->fail(VESCOMM_ERROR_ABORTED, "enough");
    EXPECT_EQ(observer.calls(), 1);
    expect_outcome(outcome_of([&] { control->all_gather("call", "", generous()); }),
                   VESCOMM_ERROR_ABORTED, {"enough"});
    expect_outcome(outcome_of([&] { control->subgroup("part", {0}, generous()); }),
                   VESCOMM_ERROR_ABORTED, {"enough"});
}

}  // namespace
}  // namespace vescomm::internal
