// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Survivors of a failure meet over a simulated network, in which more processes end, one vanishes,
// others pause, connections break, and unauthenticated peers, or survivors, listen on the ports of
// ended processes. All that are alive must end up in one session of all of them.
//
// A seed ends when the session of all has been undisturbed for a while; see Trial::settled_for.
//
//     VESCOMM_TEST_SEEDS         the last seed; by default 10000, or 1500 with sanitizers
//     VESCOMM_TEST_FIRST_SEED    the first seed, 1 by default
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <optional>

#include "bootstrap/regroup.h"
#include "bootstrap/session_core.h"
#include "simulated_network.h"
#include "support/number_in.h"
#include "unauthenticated_peer.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using vescomm::testing_support::number_in;

constexpr GroupId group{1, 2};

// A process that has lost its communicator and shrinks it, as Session::regroup() and its callers
// do.
class Process {
public:
    // `lost`: Regroup::Events::lost.
    Process(SimulatedWorld &world, int rank, const std::vector<SurvivorListener> &listeners,
            std::function<bool(int member)> lost)
        : network_(world, rank), rank_(rank), listeners_(listeners), lost_(std::move(lost)) {
        options_.secret = "the secret of the test";
        root_.emplace(network_, options_, [] {});
        for (int member = 0; member < static_cast<int>(listeners.size()); ++member)
            left_.push_back(member);
    }

    SurvivorListener listen() { return root_->listen_for_survivors(network_.host()); }

    void shrink() {
        std::set<int> excluded;
        for (int member = 0; member < static_cast<int>(listeners_.size()); ++member)
            if (!std::ranges::binary_search(left_, member)) excluded.insert(member);
        made_.emplace(network_, options_, [this] { look(); });
        regroup_.emplace(
            network_, *root_, group, rank_, listeners_, std::set<int>(), std::move(excluded),
            Regroup::Events{[this](Regroup::Result result) { met(std::move(result)); },
                            [this](const Error &why) { error = why; },
                            [this](const Stream &stream) {
                                return made_->listen_for_survivors(stream.local().host);
                            },
                            lost_});
        regroup_->begin();
        if (!timer_) look_again();
    }

    // The members of a session that works, by new rank; otherwise empty.
    std::vector<int> session() {
        const bool works = made_ && made_->begun() && made_->started() && !made_->failure();
        return works ? met_ : std::vector<int>();
    }

    std::optional<Error> error;

private:
    void met(Regroup::Result result) {
        met_ = result.survivors;
        made_->set_rank(static_cast<int>(std::ranges::find(met_, rank_) - met_.begin()),
                        static_cast<int>(met_.size()));
        if (result.leader) made_->begin_client(std::move(*result.leader));
        else made_->begin_hub(std::move(result.followers), result.welcome);
        look();
    }

    // A session that has failed, or has lost a member, is replaced by another one.
    void look() {
        if (again_ || !made_->begun()) return;
        const std::optional<Error> failure = made_->failure();
        if (!failure && !made_->client().anyone_absent()) return;
        if (failure && failure->status != VESCOMM_ERROR_PEER_FAILED) {
            error = failure;
            return;
        }
        again_ = true;
        network_.post([this] {
            again_ = false;
            if (made_->started()) left_ = met_;
            regroup_.reset();
            made_.reset();
            shrink();
        });
    }

    void look_again() {
        timer_ = network_.at(network_.now() + of_seconds(0.1), [this] {
            look();
            look_again();
        });
    }

    SimulatedNetwork network_;
    std::unique_ptr<Timer> timer_;
    SessionOptions options_;
    int rank_;
    const std::vector<SurvivorListener> &listeners_;
    std::function<bool(int member)> lost_;
    std::vector<int> left_, met_;
    std::optional<SessionCore> root_, made_;
    std::optional<Regroup> regroup_;
    bool again_ = false;
};

class Trial {
public:
    // A process takes another for dead after a silence of 10 s. Three times that after the last
    // fault and the last change, only heartbeats and looks remain: the trial ends.
    static constexpr double settled_for = 30;
    static constexpr double longest = 300;
    // Every seed that is a multiple of this runs for the longest time nevertheless.
    static constexpr std::uint64_t whole_every = 64;

    explicit Trial(std::uint64_t seed) : world_(seed), whole_(seed % whole_every == 0) {
        const int ranks = draw(2, 6);
        // On one host, a survivor may get the port of a process that has ended.
        world_.set_hosts(draw(0, 1));
        listeners_.resize(static_cast<std::size_t>(ranks));
        const auto lost = [this, noticed = draw(0, 1) == 0](int member) {
            return noticed && !world_.alive(member);
        };
        for (int rank = 0; rank < ranks; ++rank)
            processes_.emplace_back(world_, rank, listeners_, lost);
        for (int rank = 0; rank < ranks; ++rank)
            listeners_[static_cast<std::size_t>(rank)] = processes_[rank].listen();
    }

    void run() {
        const int ranks = static_cast<int>(processes_.size());
        if (draw(0, 3) == 0) world_.vanish(draw(0, ranks - 1));
        else end(draw(0, ranks - 1));
        for (int rank = 0; rank < ranks; ++rank)
            world_.at(in(0.05), rank, [this, rank] { processes_[rank].shrink(); });
        for (int death = draw(0, 2); death > 0 && living().size() > 1; --death)
            world_.at(in(0.1), -1, [this, rank = draw(0, ranks - 1)] {
                if (living().size() > 1) end(rank);
            });
        for (int reset = draw(0, 2); reset > 0; --reset)
            world_.at(in(0.1), -1, [this, a = draw(0, ranks - 1), b = draw(0, ranks - 1)] {
                if (a != b) world_.reset(a, b);
            });
        for (int pause = draw(0, 1); pause > 0; --pause)
            world_.at(in(0.1), -1, [this, rank = draw(0, ranks - 1), seconds = draw(1, 30)] {
                world_.pause(rank, seconds);
            });
        watch();
        world_.run(longest, [](int) {});
    }

    void check() {
        for (const int rank : living()) {
            Process &process = processes_[rank];
            EXPECT_FALSE(process.error) << "rank " << rank << ": " << process.error->what();
            EXPECT_EQ(process.session(), living()) << "rank " << rank;
        }
    }

private:
    // Ends the trial once it has been settled for long enough. All faults begin in the first tenth
    // of a second, so none is missed.
    void watch() {
        world_.at(world_.now() + of_seconds(1), -1, [this] {
            if (!settled()) unsettled_at_ = world_.now();
            if (!whole_ && world_.now() - unsettled_at_ >= of_seconds(settled_for)) world_.stop();
            watch();
        });
    }
    // All that live run, and are in one session of all of them.
    bool settled() {
        const std::vector<int> expected = living();
        return std::ranges::all_of(expected, [&](int rank) {
            return !world_.paused(rank) && processes_[rank].session() == expected;
        });
    }
    // Ends a process. Afterwards an unauthenticated peer may listen on its port.
    void end(int rank) {
        if (!world_.alive(rank)) return;
        world_.end(rank);
        if (draw(0, 1) == 0) return;
        constexpr int manners = static_cast<int>(UnauthenticatedPeer::Manner::count);
        const int process = static_cast<int>(processes_.size()) + rank;
        world_.at(in(0.01), -1, [this, rank, process, manner = draw(0, manners - 1)] {
            const TcpAddress &address = listeners_[static_cast<std::size_t>(rank)].address;
            if (world_.listens(address)) return;
            unauthenticated_.emplace_back(world_, process, address,
                                          static_cast<UnauthenticatedPeer::Manner>(manner));
        });
    }
    int draw(int min, int max) { return std::uniform_int_distribution(min, max)(world_.random); }
    Clock::time_point in(double seconds) {
        return world_.now() +
               of_seconds(std::uniform_real_distribution(0.0, seconds)(world_.random));
    }
    std::vector<int> living() {
        std::vector<int> ranks;
        for (int rank = 0; rank < static_cast<int>(processes_.size()); ++rank)
            if (world_.alive(rank) && !world_.vanished(rank)) ranks.push_back(rank);
        return ranks;
    }

    SimulatedWorld world_;
    std::vector<SurvivorListener> listeners_;
    std::deque<Process> processes_;
    std::deque<UnauthenticatedPeer> unauthenticated_;
    const bool whole_;
    Clock::time_point unsettled_at_ = world_.now();
};

TEST(RegroupSimulation, TheLivingMeetInOneSession) {
    // Sanitizers slow a seed down.
    const int usual = std::getenv("VESCOMM_TEST_SLOW") != nullptr ? 1'500 : 10'000;
    const int last = number_in("VESCOMM_TEST_SEEDS", usual);
    for (int seed = number_in("VESCOMM_TEST_FIRST_SEED", 1); seed <= last && !HasFailure();
         ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Trial trial(static_cast<std::uint64_t>(seed));
        trial.run();
        trial.check();
    }
}

// A process that never answers listens on the port of the ended one.
TEST(RegroupSimulation, ASilentUnauthenticatedPeerDelaysTheMeetingForAShortTime) {
    constexpr int ranks = 4;
    for (int victim = 0; victim < ranks; ++victim)
        for (const bool noticed : {true, false}) {
            SCOPED_TRACE(testing::Message() << "rank " << victim << " ended, noticed " << noticed);
            SimulatedWorld world(7);
            std::vector<SurvivorListener> listeners(ranks);
            std::deque<Process> processes;
            for (int rank = 0; rank < ranks; ++rank)
                processes.emplace_back(world, rank, listeners,
                                       [&](int member) { return noticed && !world.alive(member); });
            for (int rank = 0; rank < ranks; ++rank) listeners[rank] = processes[rank].listen();
            world.end(victim);
            const UnauthenticatedPeer peer(world, ranks + victim, listeners[victim].address,
                                           UnauthenticatedPeer::Manner::silent);
            std::vector<int> survivors;
            for (int rank = 0; rank < ranks; ++rank)
                if (rank != victim) {
                    survivors.push_back(rank);
                    world.at(world.now(), rank, [&, rank] { processes[rank].shrink(); });
                }
            world.run(noticed ? 12 : 65, [](int) {});
            for (const int rank : survivors)
                EXPECT_EQ(processes[rank].session(), survivors) << "rank " << rank;
        }
}

}  // namespace
}  // namespace vescomm::internal
