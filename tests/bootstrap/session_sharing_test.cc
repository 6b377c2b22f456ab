// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Sharing within a process: communicators share a session, creations overlap in it, a hub outlives
// the communicators of its own process, and descriptors are passed. Ranks are threads.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <barrier>
#include <latch>

#include "bootstrap/descriptor_exchange.h"
#include "session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

// The creation of a communicator, in the existing session of the process or in a new one.
struct Begun {
    Begun(const Place &place, int rank, std::string tag, Deadline deadline = generous())
        : creation(std::move(tag)),
          session(Session::meet(place.options(rank), deadline, creation)) {}

    Session::Creation creation;
    const std::shared_ptr<Session> session;
};

std::shared_ptr<Session> meet(const Place &place, int rank, Deadline deadline = generous()) {
    return Begun(place, rank, "a unique tag", deadline).session;
}

// Runs every rank as a thread, with its session.
std::vector<Outcome> run_sessions(const Place &place,
                                  const std::function<void(std::shared_ptr<Session>)> &body) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(place.ranks()));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < place.ranks(); ++rank)
        threads.emplace_back(
            [&, rank] { outcomes[rank] = outcome_of([&] { body(meet(place, rank)); }); });
    for (std::thread &thread : threads) thread.join();
    return outcomes;
}

void expect_nothing_wrong(const std::vector<Outcome> &outcomes) {
    for (const Outcome &outcome : outcomes) EXPECT_FALSE(outcome) << outcome->second;
}

TEST(SessionSharing, ReusesTheExistingSession) {
    const Place place(2);
    std::barrier barrier(2);
    expect_nothing_wrong(run_sessions(place, [&](const std::shared_ptr<Session> &session) {
        EXPECT_TRUE(session->intact());
        EXPECT_FALSE(session->ended_in_order());
        EXPECT_EQ(meet(place, session->rank()), session);
        barrier.arrive_and_wait();
    }));
}

TEST(SessionSharing, MeetsOnceForTwoThreads) {
    const Place place(2);
    std::vector<std::shared_ptr<Session>> met(4);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < met.size(); ++i)
        threads.emplace_back([&, i] {
            met[i] = Begun(place, static_cast<int>(i % 2), std::to_string(i / 2)).session;
        });
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(met[0], met[2]);
    EXPECT_EQ(met[1], met[3]);
    EXPECT_NE(met[0], met[1]);
}

TEST(SessionSharing, ReportsThatAnotherThreadIsStillMeeting) {
    const Place place(2);  // rank 0 never comes
    std::vector<Outcome> outcomes(2);
    std::vector<std::thread> threads;
    for (Outcome &outcome : outcomes)
        threads.emplace_back(
            [&] { outcome = outcome_of([&] { meet(place, 1, Deadline::after(0.3)); }); });
    for (std::thread &thread : threads) thread.join();
    for (const Outcome &outcome : outcomes)
        expect_outcome(outcome, VESCOMM_ERROR_TIMEOUT, {"rank 1"});
}

// The thread that comes second has waited for the first one.
TEST(SessionSharing, ReportsTheWholeTimeThatAThreadHasWaited) {
    const Place place(2);  // rank 1 never comes
    std::vector<Outcome> outcomes(2);
    std::vector<std::thread> threads;
    for (Outcome &outcome : outcomes)
        threads.emplace_back(
            [&] { outcome = outcome_of([&] { meet(place, 0, Deadline::after(0.3)); }); });
    for (std::thread &thread : threads) thread.join();
    for (const Outcome &outcome : outcomes) {
        expect_outcome(outcome, VESCOMM_ERROR_TIMEOUT, {"rank "});
        EXPECT_EQ(outcome->second.find("within the 0.0 s"), std::string::npos) << outcome->second;
    }
}

TEST(SessionSharing, RefusesCreationsThatOverlapUnderOneTag) {
    const Place place(2);
    std::barrier barrier(2);
    expect_nothing_wrong(run_sessions(place, [&](const std::shared_ptr<Session> &session) {
        const int rank = session->rank();
        {
            const Begun one(place, rank, "a"), other(place, rank, "b");
            EXPECT_NE(one.creation.id(), other.creation.id());
            one.creation.check();
            other.creation.check();
            const Begun again(place, rank, "a");
            EXPECT_NE(again.creation.id(), one.creation.id());
            for (const Begun *each : {&one, &again})
                expect_outcome(outcome_of([&] { each->creation.check(); }),
                               VESCOMM_ERROR_INVALID_ARGUMENT,
                               {"rank " + std::to_string(rank), "the tag \"a\""});
            other.creation.check();
        }
        Begun(place, rank, "a").creation.check();
        barrier.arrive_and_wait();
    }));
}

TEST(SessionSharing, DistinguishesAnOverlapFromOtherErrors) {
    const Place place(2);
    std::barrier barrier(2);
    expect_nothing_wrong(run_sessions(place, [&](const std::shared_ptr<Session> &session) {
        const Begun first(place, session->rank(), {}), another(place, session->rank(), {});
        const Session::Creation &one = first.creation, &other = another.creation;
        try {
            one.check();
            ADD_FAILURE() << "two creations did not overlap";
        } catch (const Error &error) {
            EXPECT_TRUE(Session::Creation::overlapped(error)) << error.what();
            EXPECT_FALSE(Session::Creation::overlapped(Error(VESCOMM_ERROR_TIMEOUT, error.what())));
        }
        EXPECT_FALSE(
            Session::Creation::overlapped(Error(VESCOMM_ERROR_INVALID_ARGUMENT, "a rank")));
        // Each creation waits until the other one has been refused as well.
        std::thread second([&] { other.wait_for_the_other(); });
        one.wait_for_the_other();
        second.join();
        barrier.arrive_and_wait();
    }));
}

TEST(SessionSharing, OverlapFailsAGroupThatIsBeingOpened) {
    const Place place(2);
    // Rank 0 ends its session after the overlap, so rank 1 begins before.
    std::latch opened(2), overlapped(1);
    const auto outcomes = run_sessions(place, [&](const std::shared_ptr<Session> &session) {
        Begun begun(place, session->rank(), {});
        Session::Creation &creation = begun.creation;
        if (session->rank() == 1) {
            opened.count_down();
            overlapped.wait();
            session->open(creation.id(), {0, 1}, "communicator creation", generous(), &creation);
            return;
        }
        std::thread second([&] {
            opened.wait();
            const Begun other(place, 0, {});
            overlapped.count_down();
            other.creation.wait_for_the_other();
        });
        opened.count_down();
        const Outcome outcome = outcome_of([&] {
            session->open(creation.id(), {0, 1}, "communicator creation", generous(), &creation);
        });
        creation.wait_for_the_other();
        second.join();
        if (outcome) throw Error(outcome->first, outcome->second);
    });
    for (const Outcome &outcome : outcomes)
        expect_outcome(outcome, VESCOMM_ERROR_INVALID_ARGUMENT, {"two threads of rank 0"});
}

TEST(SessionSharing, HubServesOtherGroupsAfterRankZeroHasEndedItsSession) {
    const Place place(3);
    std::latch ended(1);
    std::vector<Outcome> outcomes(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
        threads.emplace_back([&, rank] {
            outcomes[rank] = outcome_of([&] {
                auto control = take_part(place.options(rank), generous());
                if (rank == 0) {
                    control->leave(generous());
                    control.reset();
                    ended.count_down();
                    return;
                }
                const auto part = control->subgroup("part", {1, 2}, generous());
                control->leave(generous());
                ended.wait();
                for (int call = 0; call < 5; ++call)
                    EXPECT_EQ(part->all_gather("call", std::to_string(rank), generous()),
                              (std::vector<std::string>{"1", "2"}));
                part->leave(generous());
            });
        });
    for (std::thread &thread : threads) thread.join();
    expect_nothing_wrong(outcomes);
    // The next session of this process destroys the deserted hub.
    const Place next(2);
    for (int round = 0; round < 2; ++round)
        expect_nothing_wrong(
            run_threads(next, [](Control &control) { control.leave(generous()); }));
}

bool same_file(int one, int other) {
    struct stat a, b;
    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

TEST(SessionSharing, PassesDescriptorsByTicket) {
    const Place place(3);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Descriptor read_end(ends[0]), write_end(ends[1]);
    std::latch fetched(3);
    expect_nothing_wrong(run_threads(place, [&](Control &control) {
        DescriptorExchange &exchange = control.descriptors();
        DescriptorExchange::Offer offer;
        if (control.rank() == 1) offer = exchange.offer(read_end.get());
        const std::string ticket = control.all_gather("ticket", offer.ticket(), generous())[1];
        // Twice, and also in the process that offers it.
        for (int i = 0; i < 2; ++i) {
            const Descriptor mine = exchange.fetch(ticket).wait(generous(), 1, 0);
            EXPECT_TRUE(mine.get() != read_end.get() && same_file(mine.get(), read_end.get()));
        }
        fetched.arrive_and_wait();
        offer = {};
        control.all_gather("withdrawn", "", generous());
        expect_outcome(outcome_of([&] { exchange.fetch(ticket).wait(generous(), 1, 0); }),
                       VESCOMM_ERROR_SYSTEM, {});
        expect_outcome(outcome_of([&] { exchange.fetch("no ticket").wait(generous(), 1, 0); }),
                       VESCOMM_ERROR_INTERNAL, {"wrong size"});
        control.leave(generous());
    }));
}

}  // namespace
}  // namespace vescomm::internal
