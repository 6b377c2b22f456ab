// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Sessions without failures, and with ranks that disagree, stay away or give up. Ranks are threads.
// session_death_test.cc kills processes; in session_hostile_test.cc unauthenticated peers connect.
#include "bootstrap/session.h"

#include <fcntl.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <latch>
#include <set>

#include "session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

std::string contribution(int rank, std::size_t bytes) {
    return std::string(bytes, static_cast<char>('a' + rank));
}

class SessionOfRanks : public testing::TestWithParam<int> {};

TEST_P(SessionOfRanks, GathersContributionsOfAnySizeByRank) {
    // Below, at and above the size of a frame; empty for some or all ranks.
    const std::vector<std::size_t> sizes{0, 1, 1000, 262143, 262144, 262145, 3000000};
    const auto size_for = [&](int rank, std::size_t round) {
        return round == 0 ? 0 : sizes[(static_cast<std::size_t>(rank) + round) % sizes.size()];
    };
    const Place place(GetParam());
    const auto outcomes = run_threads(place, [&](Control &control) {
        for (std::size_t round = 0; round <= sizes.size(); ++round) {
            const auto all = control.all_gather(
                "round " + std::to_string(round),
                contribution(control.rank(), size_for(control.rank(), round)), generous());
            ASSERT_EQ(all.size(), static_cast<std::size_t>(place.ranks()));
            for (int rank = 0; rank < place.ranks(); ++rank)
                ASSERT_EQ(all[rank], contribution(rank, size_for(rank, round)));
        }
        control.leave(generous());
    });
    for (const Outcome &outcome : outcomes) EXPECT_FALSE(outcome) << outcome->second;
}

TEST_P(SessionOfRanks, LeavesWithoutFailure) {
    const Place place(GetParam());
    std::vector<FailureObserver> observers(static_cast<std::size_t>(place.ranks()));
    run_threads(place, [&](Control &control) {
        control.listen(observers[control.rank()].listener());
        control.leave(generous());
    });
    for (const FailureObserver &observer : observers) EXPECT_EQ(observer.calls(), 0);
}

TEST_P(SessionOfRanks, ReportsTheFirstFailureOnceToEveryRank) {
    const Place place(GetParam());
    for (int failing = 0; failing < place.ranks(); ++failing) {
        std::vector<FailureObserver> observers(static_cast<std::size_t>(place.ranks()));
        std::barrier barrier(place.ranks());
        run_threads(place, [&](Control &control) {
            FailureObserver &observer = observers[control.rank()];
            control.listen(observer.listener());
            if (control.rank() == failing) {
                control.fail(VESCOMM_ERROR_ABORTED, "the first cause");
                control.fail(VESCOMM_ERROR_INTERNAL, "a later one");
            }
            expect_outcome(observer.wait(), VESCOMM_ERROR_ABORTED, {"the first cause"});
            barrier.arrive_and_wait();
            for (int again = 0; again < 2; ++again)
                expect_outcome(outcome_of([&] { control.all_gather("later", "", generous()); }),
                               VESCOMM_ERROR_ABORTED, {"the first cause"});
            FailureObserver late;
            control.listen(late.listener());
            control.leave(generous());
        });
        for (const FailureObserver &observer : observers) EXPECT_EQ(observer.calls(), 1);
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SessionOfRanks, testing::Values(1, 2, 3, 5, 8),
                         testing::PrintToStringParamName());

TEST(SessionOneRank, UsesNeitherThreadNorSocket) {
    const auto count = [](const char *folder) {
        return std::distance(std::filesystem::directory_iterator(folder), {});
    };
    const auto descriptors = count("/proc/self/fd");
    const auto threads = count("/proc/self/task");
    const auto control = take_part(SessionOptions(), generous());
    EXPECT_EQ(count("/proc/self/fd"), descriptors);
    EXPECT_EQ(count("/proc/self/task"), threads);
    EXPECT_EQ(control->all_gather("call", "bytes", generous()), std::vector<std::string>{"bytes"});
}

TEST(SessionAddress, WorksByNameAndOverIpv6) {
    for (const char *host : {"localhost", "127.0.0.1", "::1"}) {
        SCOPED_TRACE(host);
        std::uint16_t port = 0;
        try {
            // A port that was free a moment ago on all addresses of the host.
            port = port_of(listen_on({host, 0})[0].get());
        } catch (const Error &) {
            continue;  // no IPv6 here
        }
        std::vector<std::thread> threads;
        std::atomic<int> good = 0;
        for (int rank = 0; rank < 3; ++rank)
            threads.emplace_back([&, rank] {
                SessionOptions options;
                options.rank = rank;
                options.ranks = 3;
                options.secret = "s";
                options.addresses = {{host, port}};
                const Outcome outcome = outcome_of([&] {
                    const auto control = take_part(options, generous());
                    control->all_gather("call", "x", generous());
                    control->leave(generous());
                });
                EXPECT_FALSE(outcome) << outcome->second;
                if (!outcome) ++good;
            });
        for (std::thread &thread : threads) thread.join();
        EXPECT_EQ(good, 3);
    }
}

TEST(SessionAddress, FindsRankZeroAmongManyAddresses) {
    const MeetingPoint point = open_meeting_point();
    ASSERT_FALSE(point.addresses.empty());
    const Place place(4);
    const auto outcomes = run_threads(
        place,
        [](Control &control) {
            control.all_gather("call", "x", generous());
            control.leave(generous());
        },
        [&](SessionOptions &options) {
            options.addresses = point.addresses;
            // An unreachable address (RFC 5737), and one at which no process listens.
            options.addresses.insert(options.addresses.begin(), {"127.0.0.1", 1});
            options.addresses.insert(options.addresses.begin(), {"192.0.2.77", 9});
            if (options.rank == 0) options.listen_descriptor = point.listener.get();
        });
    for (const Outcome &outcome : outcomes) EXPECT_FALSE(outcome) << outcome->second;
}

// Between a socket on all interfaces and one of a single interface the port is never free, when
// another process would take it.
TEST(SessionAddress, AListenerKeepsItsPortWhileItIsNarrowed) {
    MeetingPoint point = open_meeting_point();
    const std::uint16_t port = port_of(point.listener.get());
    EXPECT_FALSE(listen_beside(point.listener.get(), "192.0.2.77").open());
    EXPECT_THROW(listen_on({"127.0.0.1", port}), Error);

    Descriptor beside = listen_beside(point.listener.get(), "127.0.0.1");
    ASSERT_TRUE(beside.open());
    EXPECT_EQ(port_of(beside.get()), port);
    EXPECT_THROW(listen_on({"127.0.0.1", port}), Error);
    point.listener = Descriptor();
    EXPECT_THROW(listen_on({"127.0.0.1", port}), Error);
    beside = Descriptor();
    EXPECT_EQ(port_of(listen_on({"127.0.0.1", port})[0].get()), port);
}

TEST(SessionAddress, EveryAddressOfAMeetingPointIsReachable) {
    const MeetingPoint point = open_meeting_point();
    for (const TcpAddress &address : point.addresses) {
        SCOPED_TRACE(to_text(address));
        const Place place(2);
        const auto outcomes = run_threads(
            place, [](Control &control) { control.leave(generous()); },
            [&](SessionOptions &options) {
                options.addresses = {address};
                if (options.rank == 0) options.listen_descriptor = point.listener.get();
            });
        for (const Outcome &outcome : outcomes) EXPECT_FALSE(outcome) << outcome->second;
    }
}

TEST(SessionAddress, ReportsThatThePortIsTaken) {
    const Place place(2);
    SessionOptions options = place.options(0);
    options.listen_descriptor = -1;
    expect_outcome(outcome_of([&] { take_part(options, generous()); }), VESCOMM_ERROR_SYSTEM,
                   {to_text(place.address()), "another program"});
}

TEST(SessionAddress, ParsesAndFormatsAddresses) {
    for (const char *text : {"host:1", "1.2.3.4:65535", "[::1]:80", "a-b.c:29501"})
        EXPECT_EQ(to_text(parse_tcp_address(text, "it")), text);
    for (const char *text :
         {"", "host", "host:", ":1", "host:0", "host:65536", "host:-1", "host:1x", "::1:80",
          "[]:80", "[::1]", "a b:1", "*:1", "host: 1", "http://host:1"})
        expect_outcome(outcome_of([&] { parse_tcp_address(text, "VESCOMM_ADDRESS=x"); }),
                       VESCOMM_ERROR_INVALID_ARGUMENT, {"VESCOMM_ADDRESS=x"});
}

TEST(SessionOptions, AreCheckedFirst) {
    const Place place(2);
    const auto check = [&](const Tweak &tweak, const char *part) {
        SessionOptions options = place.options(0);
        tweak(options);
        expect_outcome(outcome_of([&] { take_part(options, generous()); }),
                       VESCOMM_ERROR_INVALID_ARGUMENT, {part});
    };
    check([](auto &options) { options.rank = 2; }, "rank 2 of 2");
    check([](auto &options) { options.rank = -1; }, "rank -1 of 2");
    check([](auto &options) { options.ranks = 0; }, "of 0");
    check([](auto &options) { options.secret.clear(); }, "secret");
    check([](auto &options) { options.rank = 1, options.addresses.clear(); }, "address");
    check([](auto &options) { options.silence_seconds = 0.5; }, "silence");
    check([](auto &options) { options.listen_descriptor = 0; }, "descriptor 0");
}

// ---- ranks that disagree ----

TEST(SessionMismatch, NamesTwoRanksAndBothLabelsEverywhere) {
    const Place place(5);
    const auto outcomes = run_threads(place, [](Control &control) {
        control.all_gather("the same", "", generous());
        control.all_gather(control.rank() == 3 ? "this" : "that", "bytes", generous());
    });
    for (const Outcome &outcome : outcomes)
        expect_outcome(outcome, VESCOMM_ERROR_MISMATCH, {"\"this\"", "\"that\"", "rank 3"});
}

TEST(SessionMismatch, DetectsARankThatLeftBeforeACall) {
    for (const int leaving : {0, 2}) {
        const Place place(3);
        const auto outcomes = run_threads(place, [&](Control &control) {
            if (control.rank() == leaving) return control.leave(generous());
            control.all_gather("call", "", generous());
        });
        for (int rank = 0; rank < 3; ++rank)
            if (rank != leaving)
                expect_outcome(outcomes[rank], VESCOMM_ERROR_MISMATCH,
                               {"\"call\"", "rank " + std::to_string(leaving)});
    }
}

TEST(SessionMismatch, ReportsADuplicateRankToEveryRank) {
    const Place place(4);
    const auto outcomes = run_threads(
        place, [](Control &) { ADD_FAILURE() << "connected"; },
        [](SessionOptions &options) {
            options.linger_seconds = 60;
            if (options.rank != 3) return;
            options.rank = 2;
            // Another name of the address, so that the two ranks of this process do not share a
            // session.
            options.addresses[0].host = "localhost";
        });
    for (const Outcome &outcome : outcomes)
        expect_outcome(outcome, VESCOMM_ERROR_MISMATCH, {"two processes", "rank 2 of 4"});
}

TEST(SessionMismatch, ReportsADifferentNumberOfRanksToEveryRank) {
    const Place place(4);
    const auto outcomes = run_threads(
        place, [](Control &) { ADD_FAILURE() << "connected"; },
        [](SessionOptions &options) {
            options.linger_seconds = 60;
            if (options.rank == 2) options.ranks = 3;
        });
    for (const Outcome &outcome : outcomes)
        expect_outcome(outcome, VESCOMM_ERROR_MISMATCH, {"rank 2", "3 ranks", "rank 0 says 4"});
}

// ---- ranks that stay away ----

TEST(SessionTimeout, NamesRanksThatNeverCame) {
    const Place place(4);
    std::vector<Outcome> outcomes(2);
    std::vector<std::thread> threads;
    for (const int rank : {0, 1})
        threads.emplace_back([&, rank] {
            outcomes[rank] = outcome_of([&] {
                // Rank 1 gives up first; it has ample time to join before.
                take_part(place.options(rank), rank == 0 ? generous() : Deadline::after(2));
            });
        });
    for (std::thread &thread : threads) thread.join();
    for (const Outcome &outcome : outcomes)
        expect_outcome(outcome, VESCOMM_ERROR_TIMEOUT, {"ranks 2 and 3 of 4", "rank 1 waited"});
}

TEST(SessionTimeout, ReportsThatRankZeroCannotBeReached) {
    const Place place(2);
    SessionOptions options = place.options(1);
    options.addresses = {{"127.0.0.1", 1}, {"no-such-host.invalid", 2}};
    expect_outcome(outcome_of([&] { take_part(options, Deadline::after(0.5)); }),
                   VESCOMM_ERROR_TIMEOUT, {"rank 1 of 2", "127.0.0.1:1", "refused"});
}

TEST(SessionTimeout, FindsARankZeroThatStartsLate) {
    std::uint16_t port = port_of(listen_on({"127.0.0.1", 0})[0].get());
    SessionOptions options;
    options.ranks = 2;
    options.secret = "s";
    options.addresses = {{"127.0.0.1", port}};
    std::thread early([options]() mutable {
        options.rank = 1;
        take_part(options, generous())->leave(generous());
    });
    // Rank 1 may have been refused a few times by now, or not yet.
    std::this_thread::yield();
    const auto control = take_part(options, generous());
    control->leave(generous());
    early.join();
}

TEST(SessionTimeout, NamesRanksThatDidNotArriveAtAnAllGather) {
    for (const int impatient : {0, 1}) {
        const Place place(4);
        std::latch given_up(2);
        const auto outcomes = run_threads(place, [&](Control &control) {
            if (control.rank() >= 2) return given_up.wait();
            const Outcome outcome = outcome_of([&] {
                control.all_gather("call", "x",
                                   control.rank() == impatient ? Deadline::after(0.3) : generous());
            });
            given_up.count_down();
            if (outcome) throw Error(outcome->first, outcome->second);
        });
        for (const int rank : {0, 1})
            expect_outcome(
                outcomes[rank], VESCOMM_ERROR_TIMEOUT,
                {"\"call\"", "2 and 3", "rank " + std::to_string(impatient) + " waited"});
        EXPECT_EQ(outcomes[0], outcomes[1]);
    }
}

TEST(SessionTimeout, LeaveReturnsAtItsDeadline) {
    const Place place(2);
    std::latch left(1);
    FailureObserver observer;
    run_threads(place, [&](Control &control) {
        if (control.rank() == 0) {
            control.listen(observer.listener());
            control.leave(Deadline::after(0.1));
            left.count_down();
        } else {
            left.wait();
            // Rank 0 has said goodbye, so its end is no failure, but no all-gather can complete any
            // more.
            expect_outcome(outcome_of([&] { control.all_gather("call", "", generous()); }),
                           VESCOMM_ERROR_MISMATCH, {"rank 0 has left"});
        }
    });
    EXPECT_EQ(observer.calls(), 0);
}

// ---- what is left behind ----

TEST(SessionCleanliness, ClosesEveryDescriptorAndEndsEveryThread) {
    const auto count = [](const char *folder) {
        return std::distance(std::filesystem::directory_iterator(folder), {});
    };
    const auto descriptors = count("/proc/self/fd");
    for (const bool orderly : {true, false}) {
        const Place place(5);
        run_threads(place, [&](Control &control) {
            control.all_gather("call", "", generous());
            if (orderly) control.leave(generous());
            else control.fail(VESCOMM_ERROR_ABORTED, "enough");
        });
    }
    EXPECT_EQ(count("/proc/self/fd"), descriptors);
}

TEST(SessionCleanliness, StartedProgramsInheritNoDescriptor) {
    const auto list = [] {
        std::set<int> numbers;
        for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd"))
            numbers.insert(std::stoi(entry.path().filename().string()));
        return numbers;
    };
    const std::set<int> inherited = list();
    const Place place(3);
    std::barrier barrier(3);
    run_threads(place, [&](Control &control) {
        barrier.arrive_and_wait();
        if (control.rank() == 0)
            for (const int number : list())
                if (!inherited.contains(number)) {
                    const int flags = fcntl(number, F_GETFD);
                    EXPECT_TRUE(flags < 0 || (flags & FD_CLOEXEC) != 0) << number;
                }
        barrier.arrive_and_wait();
        control.leave(generous());
    });
}

TEST(SessionCleanliness, ReusesOneAddressForSuccessiveCommunicators) {
    const Place place(3);
    for (int round = 0; round < 5; ++round) {
        const auto outcomes = run_threads(place, [](Control &control) {
            control.all_gather("call", "", generous());
            control.leave(generous());
        });
        for (const Outcome &outcome : outcomes) EXPECT_FALSE(outcome) << outcome->second;
    }
}

TEST(SessionThreads, ManyThreadsMayCallFailDuringAnAllGather) {
    for (int round = 0; round < 20; ++round) {
        const Place place(3);
        std::vector<FailureObserver> observers(3);
        run_threads(place, [&](Control &control) {
            control.listen(observers[control.rank()].listener());
            std::vector<std::thread> failing;
            for (int i = 0; i < 3; ++i)
                failing.emplace_back(
                    [&, i] { control.fail(VESCOMM_ERROR_ABORTED, "thread " + std::to_string(i)); });
            for (int call = 0; call < 3; ++call)
                outcome_of([&] { control.all_gather("call", "bytes", generous()); });
            for (std::thread &thread : failing) thread.join();
            expect_outcome(observers[control.rank()].wait(), VESCOMM_ERROR_ABORTED, {"thread"});
        });
        for (const FailureObserver &observer : observers) EXPECT_EQ(observer.calls(), 1);
    }
}

}  // namespace
}  // namespace vescomm::internal
