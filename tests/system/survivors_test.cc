// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// SIGKILL ends ranks at random moments: while communicators, memory and buffers are created, during
// operations, and while objects are freed. The survivors shrink and continue. A seed determines
// everything except the exact moment.
//
//     VESCOMM_TEST_REPETITIONS    number of seeds of each test
//     VESCOMM_TEST_FIRST_SEED     first seed, 1 by default
#include <time.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include "support/number_in.h"
#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;
using Clock = std::chrono::steady_clock;

constexpr int max_ranks = 6;

struct Shared {
    struct Rank {
        std::atomic<int> survivors;  // size of its last communicator, valid once that works
        std::atomic<bool> refused;  // its creation failed with a documented error
        std::atomic<double> shrink_seconds;  // its longest shrink
    };
    Rank ranks[max_ranks];
};

struct Trial {
    explicit Trial(unsigned number) : seed(number), random(number) {
        ranks = draw(3, max_ranks);
        const int shape = draw(0, 2);
        per_node = shape == 0 ? ranks : draw(1, ranks - 1);
    }

    int draw(int min, int max) { return std::uniform_int_distribution(min, max)(random); }
    // Seconds from 1 us to 50 ms, uniform on a logarithmic scale.
    double moment() {
        return 1e-6 * std::exp(std::uniform_real_distribution(0.0, std::log(5e4))(random));
    }

    unsigned seed;
    std::mt19937 random;
    int ranks, per_node;
};

// Kills this process after `seconds`.
void die_in(double seconds) {
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    timer_t timer{};
    expect(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "a timer");
    itimerspec when{};
    when.it_value.tv_nsec = static_cast<long>(seconds * 1e9) + 1;
    expect(timer_settime(timer, 0, &when, nullptr) == 0, "the time of a timer");
}

// Uses a communicator: operations, split, memory, or a buffer. Returns false if a call failed.
bool use(vescomm_comm_t *comm, std::mt19937 &random, int what) {
    const int rank = rank_of(comm), ranks = ranks_of(comm);
    const auto sum_is_right = [](vescomm_comm_t *on) {
        const auto count = static_cast<std::int64_t>(5000);
        std::vector<float> data(static_cast<std::size_t>(count), 1);
        if (vescomm_all_reduce(on, data.data(), data.data(), count, VESCOMM_F32, VESCOMM_SUM,
                               nullptr, nullptr, nullptr) != VESCOMM_OK)
            return false;
        const auto sum = static_cast<float>(ranks_of(on));
        for (const float each : data) expect(each == sum, "a sum");
        return true;
    };
    if (what == 0) return sum_is_right(comm) && vescomm_barrier(comm) == VESCOMM_OK;
    if (what == 1) {  // a derived communicator
        vescomm_comm_t *part = nullptr;
        const int color = random() % 2 == 0 ? 0 : rank % 2;
        if (vescomm_comm_split(comm, color, rank, nullptr, &part) != VESCOMM_OK) return false;
        const bool right = sum_is_right(part);
        const bool freed = vescomm_comm_free(part) == VESCOMM_OK;
        return right && freed;
    }
    if (what == 2) {  // memory
        vescomm_memory_options_t options = vescomm_memory_options_init();
        options.bytes = 100'000;
        vescomm_memory_t *memory = nullptr;
        if (vescomm_memory_create(comm, &options, &memory) != VESCOMM_OK) return false;
        require(vescomm_memory_free(memory), "free memory");
        return true;
    }
    // A buffer with a request.
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 777);
    vescomm_layout_t *layout = nullptr;
    vescomm_buffer_t *buffer = nullptr;
    vescomm_request_t *request = nullptr;
    require(vescomm_layout_create_from_counts(counts.data(), ranks, &layout), "layout");
    bool good = vescomm_buffer_create(comm, layout, nullptr, &buffer) == VESCOMM_OK;
    require(vescomm_layout_free(layout), "free a layout");
    good = good && vescomm_all_reduce_create(comm, buffer, nullptr, &request) == VESCOMM_OK;
    for (int i = 0; good && i < 3; ++i)
        good = vescomm_request_start(request, nullptr) == VESCOMM_OK &&
               vescomm_request_wait(request) == VESCOMM_OK;
    if (request != nullptr) vescomm_request_free(request);
    if (buffer != nullptr) vescomm_buffer_free(buffer);
    return good;
}

// The error of a failed call must name a rank.
void expect_rank_is_named() {
    expect(std::string(vescomm_get_last_error()).find("rank") != std::string::npos,
           "a failure names a rank");
}

vescomm_comm_t *shrink(vescomm_comm_t *comm, Shared::Rank &mine) {
    vescomm_comm_t *less = nullptr;
    const auto begin = Clock::now();
    require(vescomm_comm_shrink(comm, nullptr, 0, &less), "shrink");
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    mine.shrink_seconds = std::max<double>(mine.shrink_seconds, took);
    require(vescomm_comm_free(comm), "free the broken one");
    return less;
}

// Uses a communicator until a rank has died, then shrinks it; repeats this until `ranks` are left.
// Calls `ready` when all ranks have a communicator, and `before_shrink` before it shrinks one.
vescomm_comm_t *survive(
    vescomm_comm_t *comm, int ranks, unsigned seed, Shared::Rank &mine,
    const std::function<void(int ranks)> &ready,
    const std::function<void()> &before_shrink = [] {}) {
    while (ranks_of(comm) > ranks) {
        std::mt19937 random(seed);  // the same on every rank
        bool good = use(comm, random, 0);
        if (good) ready(ranks_of(comm));
        while (good) good = use(comm, random, static_cast<int>(random() % 4));
        expect_rank_is_named();
        before_shrink();
        comm = shrink(comm, mine);
    }
    return comm;
}

void use_after_shrink(vescomm_comm_t *comm, unsigned seed, Shared::Rank &mine) {
    std::mt19937 random(seed);
    for (int what = 0; what < 4; ++what)
        if (!use(comm, random, what)) fail("using the last communicator");
    mine.survivors = ranks_of(comm);
    require(vescomm_comm_free(comm), "free");
}

class Survivors : public ::testing::Test {
protected:
    // Runs `body` for every seed. `body` returns the ranks that it killed.
    void run_seeds(int by_default,
                   const std::function<std::vector<int>(Trial &trial, Shared *shared)> &body) {
        const auto first = static_cast<unsigned>(
            vescomm::testing_support::number_in("VESCOMM_TEST_FIRST_SEED", 1));
        const auto count = static_cast<unsigned>(repetitions(by_default));
        for (unsigned seed = first; seed < first + count && !HasFailure(); ++seed) {
            Trial trial(seed);
            SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << trial.ranks << " ranks, "
                                            << trial.per_node << " on a node");
            Shared *shared = make_shared_page<Shared>();
            const std::vector<int> victims = body(trial, shared);
            check(trial, victims, shared);
            munmap(shared, sizeof *shared);
        }
        report();
    }

    // Every surviving rank must be in a communicator of all survivors. Refused ranks do not count.
    void check(const Trial &trial, const std::vector<int> &victims, const Shared *shared) {
        int living = trial.ranks - static_cast<int>(victims.size());
        for (int rank = 0; rank < trial.ranks; ++rank) living -= shared->ranks[rank].refused;
        for (int rank = 0; rank < trial.ranks; ++rank) {
            const Shared::Rank &its = shared->ranks[rank];
            const bool died = std::find(victims.begin(), victims.end(), rank) != victims.end();
            if (!died && its.refused) ++refused_;
            if (died || its.refused) continue;
            EXPECT_EQ(its.survivors, living) << "rank " << rank;
            if (its.shrink_seconds > 0) seconds_.push_back(its.shrink_seconds);
        }
    }

    void report() {
        if (seconds_.empty()) return;
        std::sort(seconds_.begin(), seconds_.end());
        const auto part = [&](double p) {
            return seconds_[static_cast<std::size_t>(p * static_cast<double>(seconds_.size() - 1))];
        };
        std::printf(
            "%zu shrinks: median %.3f s, 90 %% %.3f s, 99 %% %.3f s, longest %.3f s; %d "
            "ranks were refused\n",
            seconds_.size(), part(0.5), part(0.9), part(0.99), part(1), refused_);
    }

    std::vector<double> seconds_;
    int refused_ = 0;
};

// One rank after another is killed while the others use their communicator, until two are left.
TEST_F(Survivors, ShrinkAfterDeathsAtRandomMoments) {
    run_seeds(12, [](Trial &trial, Shared *shared) {
        const Job job{trial.ranks, trial.per_node};
        std::vector<int> victims(static_cast<std::size_t>(trial.ranks));
        std::vector<double> moments;
        for (int rank = 0; rank < trial.ranks; ++rank)
            victims[static_cast<std::size_t>(rank)] = rank;
        std::shuffle(victims.begin(), victims.end(), trial.random);
        victims.resize(static_cast<std::size_t>(trial.draw(1, trial.ranks - 2)));
        for (std::size_t i = 0; i < victims.size(); ++i) moments.push_back(trial.moment());
        run(
            job,
            [&](int rank) {
                vescomm_comm_t *comm = nullptr;
                require(job.create(rank, nullptr, &comm), "create");
                const auto ready = [&](int ranks) {
                    const auto death = static_cast<std::size_t>(trial.ranks - ranks);
                    if (rank == victims[death]) die_in(moments[death]);
                };
                Shared::Rank &mine = shared->ranks[rank];
                const int left = trial.ranks - static_cast<int>(victims.size());
                use_after_shrink(survive(comm, left, trial.seed, mine, ready), trial.seed, mine);
            },
            victims);
        return victims;
    });
}

// A second rank is killed while the survivors of a first one shrink their communicator, and a third
// one a little later. Some ranks may have the new communicator by then, and some not.
TEST_F(Survivors, ShrinkAfterDeathsDuringShrink) {
    run_seeds(12, [](Trial &trial, Shared *shared) {
        trial.ranks = trial.draw(4, max_ranks);
        trial.per_node = trial.draw(0, 1) == 0 ? trial.ranks : trial.draw(1, trial.ranks - 1);
        const Job job{trial.ranks, trial.per_node};
        std::vector<int> victims;
        for (int rank = 0; rank < trial.ranks; ++rank) victims.push_back(rank);
        std::shuffle(victims.begin(), victims.end(), trial.random);
        victims.resize(static_cast<std::size_t>(trial.draw(2, std::min(3, trial.ranks - 2))));
        const double first = trial.moment();
        std::vector<double> moments;
        for (std::size_t i = 0; i < victims.size(); ++i)
            moments.push_back(std::uniform_real_distribution(0.0, 0.03)(trial.random));
        run(
            job,
            [&](int rank) {
                vescomm_comm_t *comm = nullptr;
                require(job.create(rank, nullptr, &comm), "create");
                const auto victim = std::find(victims.begin(), victims.end(), rank);
                const auto index = static_cast<std::size_t>(victim - victims.begin());
                bool doomed = victim == victims.end();
                Shared::Rank &mine = shared->ranks[rank];
                const int left = trial.ranks - static_cast<int>(victims.size());
                comm = survive(
                    comm, left, trial.seed, mine,
                    [&](int ranks) {
                        if (ranks == trial.ranks && rank == victims[0]) die_in(first);
                    },
                    [&] {
                        if (!std::exchange(doomed, true)) die_in(moments[index]);
                    });
                use_after_shrink(comm, trial.seed, mine);
            },
            victims);
        return victims;
    });
}

// A rank is killed while the first communicator is created. Ranks whose creation succeeded shrink.
// The creation of the others fails, and the shrunk communicator excludes them.
TEST_F(Survivors, ShrinkAfterADeathDuringCreation) {
    run_seeds(6, [](Trial &trial, Shared *shared) {
        Job job{trial.ranks, trial.per_node};
        job.timeout_seconds = 2;  // the others wait this long for a rank that dies first
        const std::vector<int> victims{trial.draw(0, trial.ranks - 1)};
        const double moment =
            0.4 * std::pow(std::uniform_real_distribution(0.0, 1.0)(trial.random), 2);
        run(
            job,
            [&](int rank) {
                vescomm_comm_t *comm = nullptr;
                if (rank == victims[0]) die_in(moment);
                Shared::Rank &mine = shared->ranks[rank];
                if (job.create(rank, nullptr, &comm) != VESCOMM_OK) {
                    expect_rank_is_named();
                    mine.refused = true;
                    return;
                }
                comm = survive(comm, trial.ranks - 1, trial.seed, mine, [](int) {});
                use_after_shrink(comm, trial.seed, mine);
            },
            victims);
        return victims;
    });
}

// A rank is killed while all ranks free a communicator. They shrink its parent.
TEST_F(Survivors, ShrinkAfterADeathDuringFree) {
    run_seeds(12, [](Trial &trial, Shared *shared) {
        const Job job{trial.ranks, trial.per_node};
        const std::vector<int> victims{trial.draw(0, trial.ranks - 1)};
        const double moment = trial.moment() / 10;
        run(
            job,
            [&](int rank) {
                vescomm_comm_t *comm = nullptr, *part = nullptr;
                require(job.create(rank, nullptr, &comm), "create");
                require(vescomm_comm_dup(comm, nullptr, &part), "dup");
                std::mt19937 random(trial.seed);
                if (use(part, random, 0) && rank == victims[0]) die_in(moment);
                require(vescomm_comm_free(part), "free");
                Shared::Rank &mine = shared->ranks[rank];
                comm = survive(comm, trial.ranks - 1, trial.seed, mine, [](int) {});
                use_after_shrink(comm, trial.seed, mine);
            },
            victims);
        return victims;
    });
}

}  // namespace
