// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The control plane in simulated time: the real hub, client, acceptor, search and descriptor
// exchange over a network that is slow, breaks, and loses processes, driven by a seed. Checks that
// every wait ends by its deadline, and that errors name only faulty ranks.
//
//     VESCOMM_TEST_SEEDS (10000), VESCOMM_TEST_FIRST_SEED (1)
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <optional>

#include "bootstrap/descriptor_exchange.h"
#include "bootstrap/gathering.h"
#include "bootstrap/session_core.h"
#include "named_ranks.h"
#include "simulated_network.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

// The deadline of each wait, the extra time for the hub to name the missing ranks, and the time
// after which a silent hub counts as failed.
constexpr double wait_seconds = 30;
constexpr double report_seconds = 2.5;
constexpr double silence_seconds = 5;
// Extra time until all processes have observed a silence: pauses and late messages.
constexpr double notice_seconds = 5;

// One process, which acts as a communicator does: meets, opens a group, runs a few all-gathers,
// passes a descriptor, leaves.
class App {
public:
    App(SimulatedWorld &world, int rank, int ranks, int gathers)
        : world_(world),
          network_(world, rank),
          rank_(rank),
          ranks_(ranks),
          gathers_(gathers),
          server_(network_) {}

    void begin() {
        SessionOptions options;
        options.rank = rank_;
        options.ranks = ranks_;
        options.addresses = {{SimulatedNetwork::host(0), 7000}};
        options.secret = "the secret of the simulation";
        options.heartbeat_seconds = 1;
        options.silence_seconds = silence_seconds;
        options.build = "a build";
        core_.emplace(network_, options, [] {});
        core_->begin();
        expect("meeting");
        look();
    }

    // Called after each event in this process.
    void look() {
        if (!core_ || over()) return;
        if (group_) take_notes();
        if (group_ && group_->failure.broken())
            return finish({group_->failure.status(), group_->failure.why()});
        if (const auto failure = core_->failure())
            return finish({failure->status, failure->what()});
        switch (state_) {
            case State::meeting:
                met_ = core_->started();
                if (met_) open();
                return;
            case State::opening:
                if (group_->opened()) gather();
                return;
            case State::gathering:
                if (auto answer = group_->take_answer()) take(*answer);
                return;
            case State::fetching:
                return;
            case State::leaving:
                if (group_->all_left()) finish({VESCOMM_OK, ""});
                return;
        }
    }

    // As ControlThread does when memory runs out. Returns false if this process has not joined, or
    // has ended.
    bool run_out() {
        if (!core_ || !met_ || over()) return false;
        core_->fail(VESCOMM_ERROR_OUT_OF_MEMORY,
                    "the control plane of rank " + std::to_string(rank_) + " failed");
        look();
        return true;
    }

    bool over() const { return result_.has_value(); }
    const std::pair<vescomm_status_t, std::string> &result() const { return *result_; }
    double late() const { return late_; }
    // Simulated time at which the result was known.
    double end() const { return end_; }
    // True if every process had joined.
    bool met() const { return met_; }
    // Seconds since the deadline of a wait that has not ended.
    double overdue() const { return over() || !core_ ? 0 : world_.seconds() - deadline_; }
    void clear() {
        fetch_.reset();
        core_.reset();
    }

private:
    enum class State { meeting, opening, gathering, fetching, leaving };

    std::string part(int rank, int round) const {
        return std::string(static_cast<std::size_t>((rank * 7 + round * 13) % 50), 'a') +
               std::to_string(rank);
    }

    void expect(const std::string &what) {
        deadline_ = world_.seconds() + wait_seconds;
        const std::uint64_t wait = ++waits_;
        world_.at(world_.now() + of_seconds(wait_seconds), rank_, [this, wait, what] {
            if (over() || wait != waits_) return;
            if (state_ == State::meeting) core_->expire(wait_seconds);
            else if (state_ == State::opening) core_->client().expire(group_, 0, wait_seconds);
            else if (state_ == State::gathering)
                core_->client().expire(group_, sequence_, wait_seconds);
            else return finish({VESCOMM_OK, ""});  // leaving, or a fetch, ends without an error
            world_.at(world_.now() + of_seconds(2), rank_, [this, wait] {
                if (!over() && wait == waits_)
                    finish({VESCOMM_ERROR_TIMEOUT, "rank 0 did not say which ranks are missing"});
            });
        });
    }

    void open() {
        std::vector<int> all_ranks;
        for (int rank = 0; rank < ranks_; ++rank) all_ranks.push_back(rank);
        group_ =
            std::make_shared<GroupState>(derive_group(whole_session, "all 0 "), rank_, all_ranks);
        state_ = State::opening;
        expect("opening");
        core_->client().open(group_, "communicator creation");
    }

    void gather() {
        if (round_ == gathers_) return leave();
        state_ = State::gathering;
        expect("gathering");
        for (int rank = 0; rank < ranks_; ++rank)
            core_->client().send_note(group_, rank, note(rank_, rank));
        std::string bytes = part(rank_, round_);
        // The last all-gather passes a descriptor from rank 0 to all ranks.
        if (round_ + 1 == gathers_ && rank_ == 0) bytes = server_.offer(0);
        core_->client().contribute(
            group_, {++sequence_, bytes.size(), "gather " + std::to_string(round_)}, bytes);
    }

    // Notes may get lost, but only notes that were sent arrive.
    void take_notes() {
        for (const auto &[from, bytes] : group_->take_notes()) {
            EXPECT_EQ(bytes, note(from, rank_));
            ++notes_taken_;
        }
    }

    static std::string note(int from, int to) {
        return std::to_string(from) + " to " + std::to_string(to);
    }

    void take(const std::vector<std::string> &answer) {
        for (int rank = 0; rank < ranks_; ++rank) {
            // In the last all-gather rank 0 sends a ticket.
            if (rank == 0 && round_ + 1 == gathers_) continue;
            EXPECT_EQ(answer[static_cast<std::size_t>(rank)], part(rank, round_));
        }
        if (++round_ < gathers_ || rank_ == 0) return gather();
        state_ = State::fetching;
        expect("fetching");
        fetch_.emplace(network_, answer[0], [this](Descriptor descriptor, const std::string &why) {
            fetched_ = descriptor.open();
            fetch_why_ = why;
            world_.at(world_.now(), rank_, [this] {
                if (!over()) leave();
            });
        });
    }

    void leave() {
        state_ = State::leaving;
        expect("leaving");
        core_->client().leave(group_);
    }

    void finish(std::pair<vescomm_status_t, std::string> result) {
        end_ = world_.seconds();
        late_ = end_ - deadline_;
        result_ = std::move(result);
        check_absence();
        // Notifies the other ranks of any failure, as GroupControl and Session do.
        if (group_) {
            core_->client().spread_failure(group_);
            core_->client().forget(group_);
        }
        network_.post([this] {
            if (core_) core_->finish();
        });
    }

    // An absence that a failure reports must also be recorded, because shrinking relies on it.
    void check_absence() {
        if (!met_ || result_->first != VESCOMM_ERROR_PEER_FAILED) return;
        for (const int rank : named_ranks(result_->second))
            EXPECT_NE(core_->client().absence(rank), "") << result_->second;
    }

    SimulatedWorld &world_;
    SimulatedNetwork network_;
    int rank_, ranks_, gathers_;
    DescriptorServer server_;
    std::optional<SessionCore> core_;
    std::optional<DescriptorFetch> fetch_;
    std::shared_ptr<GroupState> group_;
    State state_ = State::meeting;
    std::uint64_t sequence_ = 0, waits_ = 0;
    int round_ = 0;
    bool met_ = false;
    double deadline_ = 0, late_ = 0, end_ = 0;
    std::optional<std::pair<vescomm_status_t, std::string>> result_;

public:
    int notes_taken_ = 0;
    bool fetched_ = true;
    std::string fetch_why_;
};

struct Faults {
    std::set<int> faulty;  // ranks that a failure may name
    bool any = false;  // some wait must or may end in failure
    double first_gone = 1e9;  // when the first process ends or falls silent, in seconds
};

Faults arrange(SimulatedWorld &world, std::vector<std::unique_ptr<App>> &apps) {
    auto &random = world.random;
    const auto chance = [&](double p) { return std::bernoulli_distribution(p)(random); };
    const auto uniform = [&](double a, double b) {
        return std::uniform_real_distribution<double>(a, b)(random);
    };
    const int ranks = static_cast<int>(apps.size());
    Faults faults;
    world.max_latency = chance(0.2) ? 0.5 : uniform(1e-4, 2e-2);
    const auto gone = [&](double when) { faults.first_gone = std::min(faults.first_gone, when); };
    // Faults happen while the apps are running.
    const double length = 40 * world.max_latency + 0.3;
    for (int rank = 0; rank < ranks; ++rank) {
        App *app = apps[static_cast<std::size_t>(rank)].get();
        const double start = chance(0.2) ? uniform(0, 10) : uniform(0, 0.1);
        if (chance(0.03)) {  // it never starts
            faults.faulty.insert(rank);
            faults.any = true;
            continue;
        }
        world.at(world.now() + of_seconds(start), rank, [app] { app->begin(); });
        const auto at = [&](auto function) {
            const double when = start + uniform(0, length);
            world.at(world.now() + of_seconds(when), -1, function);
            return world.seconds() + when;
        };
        if (chance(0.15)) at([&world, rank, pause = uniform(0, 2)] { world.pause(rank, pause); });
        if (chance(0.04)) {
            faults.faulty.insert(rank);
            faults.any = true;
            gone(at([&world, rank] { world.end(rank); }));
        }
        if (chance(0.02)) {
            faults.faulty.insert(rank);
            faults.any = true;
            gone(at([&world, rank] { world.vanish(rank); }));
        }
        if (chance(0.02)) {
            faults.faulty.insert(rank);
            faults.any = true;
            gone(at([&world, rank] { world.pause(rank, 200); }));
        }
        if (rank > 0 && chance(0.03)) {
            // Each process regards a broken connection as the end of the other one.
            faults.faulty.insert({rank, 0});
            faults.any = true;
            at([&world, rank] { world.reset(rank, 0); });
        }
    }
    return faults;
}

// Unauthenticated peers that connect to the hub and send nothing, or invalid bytes.
struct UnauthenticatedPeers {
    UnauthenticatedPeers(SimulatedWorld &world, int process, int count) : network(world, process) {
        for (int i = 0; i < count; ++i)
            timers.push_back(network.at(world.now() + of_seconds(0.05 * i), [this, i] {
                attempts.push_back(
                    network.connect({SimulatedNetwork::host(0), 7000},
                                    [this, i](std::unique_ptr<Stream> stream, const std::string &) {
                                        if (!stream) return;
                                        stream->start({[](std::string_view) {},
                                                       [](const std::string &) {}, nullptr});
                                        if (i % 2 == 0) stream->write("GET / HTTP/1.1\r\n");
                                        streams.push_back(std::move(stream));
                                    }));
            }));
    }
    SimulatedNetwork network;
    std::vector<std::unique_ptr<Timer>> timers;
    std::vector<std::unique_ptr<Attempt>> attempts;
    std::vector<std::unique_ptr<Stream>> streams;
};

void run_seed(std::uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedWorld world(seed);
    const int ranks = 2 + static_cast<int>(world.random() % 5);
    const int gathers = 1 + static_cast<int>(world.random() % 3);
    std::vector<std::unique_ptr<App>> apps;
    for (int rank = 0; rank < ranks; ++rank)
        apps.push_back(std::make_unique<App>(world, rank, ranks, gathers));
    const Faults faults = arrange(world, apps);
    std::optional<UnauthenticatedPeers> unauthenticated;
    if (world.random() % 4 == 0) unauthenticated.emplace(world, ranks, 10);
    // No combination of waits and faults takes longer than this.
    world.run(400, [&](int process) {
        if (process < ranks) apps[static_cast<std::size_t>(process)]->look();
    });
    for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        const App &app = *apps[static_cast<std::size_t>(rank)];
        const bool lives = world.alive(rank) && !world.vanished(rank);
        if (faults.faulty.contains(rank)) continue;
        if (!lives) continue;
        EXPECT_EQ(app.overdue(), 0) << "the wait has not ended";
        if (!app.over()) continue;
        EXPECT_LE(app.late(), report_seconds);
        const auto &[status, why] = app.result();
        if (!faults.any) {
            EXPECT_EQ(status, VESCOMM_OK) << why;
            EXPECT_LT(app.late(), 0) << "a wait ended only at its deadline";
            EXPECT_TRUE(app.fetched_) << app.fetch_why_;
            // The result of an all-gather comes after the notes that were sent before it.
            EXPECT_EQ(app.notes_taken_, ranks * gathers);
            continue;
        }
        if (status == VESCOMM_OK) continue;
        // No rank waits until the deadline for a process that has joined and is gone.
        if (status == VESCOMM_ERROR_TIMEOUT && app.met()) {
            EXPECT_LT(app.end(), faults.first_gone + silence_seconds + notice_seconds) << why;
        }
        // Rank 0 gave up before and is gone.
        if (why.find("could not reach rank 0") != std::string::npos) {
            EXPECT_TRUE(faults.faulty.contains(0) || apps[0]->over()) << why;
            continue;
        }
        for (const int named : named_ranks(why))
            EXPECT_TRUE(faults.faulty.contains(named)) << "a healthy rank is named: " << why;
    }
    unauthenticated.reset();
    for (auto &app : apps) app->clear();
}

std::uint64_t number_from(const char *variable, std::uint64_t fallback) {
    const char *text = std::getenv(variable);
    return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

TEST(ControlSimulation, EveryWaitEndsAndErrorsNameOnlyFaultyRanks) {
    const std::uint64_t first = number_from("VESCOMM_TEST_FIRST_SEED", 1);
    const std::uint64_t seeds = number_from("VESCOMM_TEST_SEEDS", 10000);
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
        run_seed(seed);
        if (testing::Test::HasFailure()) {
            std::cerr << "reproduce with VESCOMM_TEST_SEEDS=1 VESCOMM_TEST_FIRST_SEED=" << seed
                      << "\n";
            return;
        }
    }
}

// Runs three ranks as App does, with a fault at one moment that must have no effect.
void expect_undisturbed(double seconds, const std::function<void(SimulatedWorld &)> &fault) {
    SCOPED_TRACE(seconds);
    SimulatedWorld world(7);
    std::vector<std::unique_ptr<App>> apps;
    for (int rank = 0; rank < 3; ++rank) {
        apps.push_back(std::make_unique<App>(world, rank, 3, 2));
        App *app = apps.back().get();
        world.at(world.now(), rank, [app] { app->begin(); });
    }
    world.at(world.now() + of_seconds(seconds), -1, [&] { fault(world); });
    world.run(100, [&](int process) { apps[static_cast<std::size_t>(process)]->look(); });
    for (const auto &app : apps) {
        ASSERT_TRUE(app->over());
        EXPECT_EQ(app->result().first, VESCOMM_OK) << app->result().second;
        EXPECT_TRUE(app->fetched_) << app->fetch_why_;
    }
    for (auto &app : apps) app->clear();
}

// Regression: a process whose control plane ran out of memory did not report it, and the others
// waited for it until their timeout.
TEST(ControlSimulation, ProcessWithoutMemoryEndsTheSessionOfAll) {
    int failed = 0;
    for (int victim = 0; victim < 3; ++victim)
        for (int moment = 0; moment < 300; ++moment) {
            SCOPED_TRACE(std::to_string(victim) + ", " + std::to_string(moment));
            SimulatedWorld world(7);
            std::vector<std::unique_ptr<App>> apps;
            for (int rank = 0; rank < 3; ++rank) {
                apps.push_back(std::make_unique<App>(world, rank, 3, 3));
                App *app = apps.back().get();
                world.at(world.now(), rank, [app] { app->begin(); });
            }
            double when = -1;
            world.at(world.now() + of_seconds(moment * 3e-4), victim, [&] {
                if (apps[static_cast<std::size_t>(victim)]->run_out()) when = world.seconds();
            });
            world.run(100, [&](int process) { apps[static_cast<std::size_t>(process)]->look(); });
            for (const auto &app : apps) {
                ASSERT_TRUE(app->over());
                if (when < 0 || app->result().first == VESCOMM_OK) continue;
                ++failed;
                EXPECT_EQ(app->result(), std::pair(VESCOMM_ERROR_OUT_OF_MEMORY,
                                                   "the control plane of rank " +
                                                       std::to_string(victim) + " failed"));
                EXPECT_LT(app->end(), when + notice_seconds);
            }
            for (auto &app : apps) app->clear();
        }
    EXPECT_GT(failed, 300);
}

// Regression: a rank that paused between connecting and sending its ticket ended the job.
TEST(ControlSimulation, PauseDuringDescriptorExchangeIsNoFailure) {
    for (int moment = 0; moment < 400; ++moment)
        expect_undisturbed(moment * 2e-4, [](SimulatedWorld &world) { world.pause(1, 4); });
}

// A suspended machine: time in which a process itself did not run is no silence of others.
TEST(ControlSimulation, SimultaneousPauseOfAllProcessesIsNoFailure) {
    for (int moment = 0; moment < 400; ++moment)
        expect_undisturbed(moment * 2e-4, [](SimulatedWorld &world) {
            for (int rank = 0; rank < 3; ++rank) world.pause(rank, 4 * silence_seconds);
        });
}

}  // namespace
}  // namespace vescomm::internal
