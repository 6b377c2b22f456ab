// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm_fsdp_recover(): ranks are killed, and the others go on with the parameters that they
// would have had without the death.
//
//     VESCOMM_TEST_REPETITIONS    number of seeds of each random test
//     VESCOMM_TEST_FIRST_SEED     first seed, 1 by default
#include <sys/syscall.h>

#include "fsdp/experts.h"
#include "fsdp/recover/elastic_job.h"
#include "support/number_in.h"

namespace {

// While true, reads of this process from files do not return.
std::atomic<bool> *hanging_reads = nullptr;

}  // namespace

// Replaces the function of the C library, to simulate a file system that hangs.
extern "C" ssize_t pread64(int file, void *bytes, std::size_t count, off_t offset) {
    while (hanging_reads != nullptr && *hanging_reads) sched_yield();
    return syscall(SYS_pread64, file, bytes, count, offset);
}

namespace vescomm::fsdp::testing {
namespace {

using forked_ranks::Job;

class Recover : public ::testing::Test {
protected:
    void SetUp() override { page_ = forked_ranks::make_shared_page<Page>(); }
    void TearDown() override {
        munmap(page_, sizeof *page_);
        if (!folder_.empty()) std::filesystem::remove_all(folder_);
    }

    std::string make_folder() {
        std::string name =
            (std::filesystem::temp_directory_path() / "recover_test.XXXXXX").string();
        EXPECT_NE(mkdtemp(name.data()), nullptr);
        return folder_ = name;
    }

    // `prepare` may set the functions of a trainee.
    void run(const Elastic &how, const Job &job, const std::vector<int> &victims,
             const std::function<void(Trainee &, int rank)> &prepare) {
        train_alone(how, *page_);
        page_->arrived = 0;
        forked_ranks::run(
            job,
            [&](int rank) {
                Page::Rank &mine = page_->ranks[rank];
                Trainee trainee(how, create(job, rank), *page_, rank);
                while (page_->arrived < job.ranks) sched_yield();
                prepare(trainee, rank);
                trainee.train();
                mine.right = hash_of(trainee.parameters()) == page_->expected;
            },
            victims);
        for (int rank = 0; rank < job.ranks; ++rank) {
            if (std::ranges::count(victims, rank) > 0) continue;
            EXPECT_LT(page_->ranks[rank].seconds, 5) << "rank " << rank;
            seconds_.push_back(page_->ranks[rank].seconds);
            EXPECT_TRUE(page_->ranks[rank].right) << "rank " << rank;
            EXPECT_GE(page_->ranks[rank].recoveries, 1) << "rank " << rank;
        }
    }

    // Kills the victims before step `at`.
    void kill_before(const Elastic &how, const Job &job, const std::vector<int> &victims,
                     int at = 2) {
        SCOPED_TRACE(::testing::Message()
                     << how.preset << " on " << job.ranks << " ranks, " << victims.size()
                     << " killed, the first is " << victims.front());
        run(how, job, victims, [&, at](Trainee &trainee, int rank) {
            if (std::ranges::count(victims, rank) == 0) return;
            trainee.before_step = [at](int step) {
                if (step == at) kill(getpid(), SIGKILL);
            };
            trainee.before_shrink = [] { kill(getpid(), SIGKILL); };
        });
    }

    int from_checkpoint(int rank) const { return page_->ranks[rank].from_checkpoint; }

    Page *page_ = nullptr;
    std::string folder_;
    std::vector<double> seconds_;  // of recoveries
};

TEST_F(Recover, TakesTheShardOfAnyRankFromItsCopy) {
    for (const int ranks : {2, 3, 5})
        for (int victim = 0; victim < ranks; ++victim) kill_before({}, Job{ranks, ranks}, {victim});
}

TEST_F(Recover, TakesShardsFromCopiesOnOtherNodes) {
    // Both ranks of a node die together.
    kill_before({}, Job{4, 2}, {0, 1});
    kill_before({}, Job{5, 2}, {2, 3});
}

// Every survivor has them, also when ranks that shard become replicas.
TEST_F(Recover, KeepsReplicatedParameters) {
    for (const char *of_survivors : {"", "ddp", "zero2"})
        kill_before({.preset_of_survivors = of_survivors, .replicated = true}, Job{3, 3}, {1});
    kill_before({.preset = "hsdp:2", .preset_of_survivors = "zero3", .replicated = true}, Job{4, 2},
                {1});
}

TEST_F(Recover, KeepsStatesOfBlocks) {
    for (int victim = 0; victim < 3; ++victim)
        kill_before({.replicated = victim == 1, .adam8bit = true}, Job{3, 3}, {victim});
    kill_before({.preset = "hsdp:2", .preset_of_survivors = "zero3", .adam8bit = true}, Job{4, 2},
                {1});
}

TEST_F(Recover, KeepsMastersInBf16) {
    for (int victim = 0; victim < 3; ++victim)
        kill_before({.replicated = victim == 1, .narrow = true}, Job{3, 3}, {victim});
    kill_before({.preset = "hsdp:2", .preset_of_survivors = "zero3", .narrow = true}, Job{4, 2},
                {1});
}

TEST_F(Recover, WorksWithEveryPreset) {
    for (const char *preset : {"zero1", "zero2"}) kill_before({.preset = preset}, Job{3, 3}, {1});
    // Replicas are copies.
    kill_before({.preset = "ddp", .partner_copy = false}, Job{3, 3}, {0, 2});
    kill_before({.preset = "hsdp:2", .preset_of_survivors = "zero3"}, Job{4, 2}, {1});
    kill_before({.preset = "hsdp:2", .partner_copy = false}, Job{4, 2}, {2, 3});
    // Secondary copies are not the source of masters; partners are.
    kill_before({.preset = "hpz:2", .preset_of_survivors = "zero3"}, Job{4, 2}, {1});
    kill_before({.preset = "hpz:2"}, Job{4, 2}, {2, 3});
}

TEST_F(Recover, LoadsTheCheckpointIfACopyIsLostToo) {
    const Elastic how{.folder = make_folder()};
    kill_before(how, Job{5, 5}, {1, 2});  // rank 2 has the copy of rank 1
    for (const int rank : {0, 3, 4}) EXPECT_EQ(from_checkpoint(rank), 1);
}

TEST_F(Recover, LoadsTheCheckpointWithoutCopies) {
    const Elastic how{.partner_copy = false, .folder = make_folder()};
    kill_before(how, Job{3, 3}, {2});
    EXPECT_EQ(from_checkpoint(0), 1);
}

// Experts of the failed rank come from its partner, also if the survivors divide them among another
// number of ranks.
TEST_F(Recover, KeepsExperts) {
    const auto options = [](int expert_ranks) {
        vescomm_fsdp_spec_options_t chosen = mixture_options(expert_ranks);
        chosen.partner_copy = 1;
        return chosen;
    };
    // In the process of a survivor.
    const auto train_one = [&] {
        const Communicator comm = create({1, 1}, 0);
        const MixtureModel model = mixture("zero3", options(1));
        Engine engine(model.spec, comm);
        fill(engine);
        for (int step = 0; step < 3; ++step) take_step(engine, model, comm, step);
        return read_views(engine, model);
    };
    for (const auto &[ranks, before, after] : {std::tuple{4, 2, 3}, {3, 1, 2}, {5, 5, 2}}) {
        const Job job{ranks, ranks};
        forked_ranks::run(
            job,
            [&, before = before, after = after](int rank) {
                Communicator comm = create(job, rank);
                const MixtureModel model = mixture("zero3", options(before));
                Engine engine(model.spec, comm);
                fill(engine);
                try {
                    for (int step = 0;; ++step) {
                        take_step(engine, model, comm, step);
                        if (rank == 1) kill(getpid(), SIGKILL);
                    }
                } catch (const Error &) {
                }
                vescomm_comm_t *less = nullptr;
                forked_ranks::require(vescomm_comm_shrink(comm.get(), nullptr, 0, &less), "shrink");
                const Communicator survivors(less);
                const MixtureModel other = mixture("zero3", options(after));
                vescomm_fsdp_recovery_t recovery = vescomm_fsdp_recovery_init();
                recovery.spec = other.spec.get();
                recovery = engine.recover(survivors, recovery);
                forked_ranks::expect(recovery.from_checkpoint == 0, "no checkpoint is needed");
                for (auto step = static_cast<int>(recovery.steps); step < 3; ++step)
                    take_step(engine, other, survivors, step);
                forked_ranks::expect(
                    read_views(engine, other) == part_of(train_one(), other, survivors.rank()),
                    "the parameters are those of one rank");
                check(vescomm_barrier(survivors.get()));
            },
            {1});
    }
}

// Without a copy and without a checkpoint the error names a lost shard, and a later call may give
// another folder.
TEST_F(Recover, SaysWhichShardIsLost) {
    const Elastic how{.partner_copy = false};
    const Job job{3, 3};
    forked_ranks::run(
        job,
        [&](int rank) {
            Communicator comm = create(job, rank);
            const Described described = describe(odd_model(), how.preset, how.options());
            Engine engine(described.spec, comm);
            fill(engine);
            ++page_->arrived;
            while (page_->arrived < job.ranks) sched_yield();
            if (rank == 1) kill(getpid(), SIGKILL);
            try {
                for (;;) read_all(engine, described.ids);
            } catch (const Error &) {
            }
            vescomm_comm_t *less = nullptr;
            forked_ranks::require(vescomm_comm_shrink(comm.get(), nullptr, 0, &less), "shrink");
            const Communicator survivors(less);
            forked_ranks::expect(
                vescomm_fsdp_recover(engine.get(), less, nullptr) == VESCOMM_ERROR_PEER_FAILED,
                "a lost shard is an error");
            const std::string text = vescomm_get_last_error();
            forked_ranks::expect(
                text.find("no survivor has the shard of rank 1") != std::string::npos,
                text.c_str());
            vescomm_fsdp_recovery_t recovery = vescomm_fsdp_recovery_init();
            recovery.folder = "/nowhere/to/be/found";
            forked_ranks::expect(vescomm_fsdp_recover(engine.get(), less, &recovery) ==
                                     VESCOMM_ERROR_INVALID_ARGUMENT,
                                 "a folder without a checkpoint");
            forked_ranks::expect(vescomm_fsdp_begin(engine.get(), 0) == VESCOMM_ERROR_ABORTED,
                                 "the engine waits for a recovery");
            forked_ranks::expect(vescomm_fsdp_reset(engine.get()) == VESCOMM_ERROR_INVALID_ARGUMENT,
                                 "reset() needs the ranks that have failed");
            recovery.folder = rank == 0 ? "/nowhere/to/be/found" : nullptr;
            forked_ranks::expect(
                vescomm_fsdp_recover(engine.get(), less, &recovery) == VESCOMM_ERROR_MISMATCH,
                "ranks pass different folders");
        },
        {1});
}

// The file system of a survivor hangs: the other one does not wait for longer than the timeout.
TEST_F(Recover, EndsAtTheTimeoutWhileASurvivorReads) {
    const Elastic how{.partner_copy = false, .folder = make_folder()};
    Job job{3, 3};
    job.timeout_seconds = 3;
    auto *hanging = forked_ranks::make_shared_page<std::atomic<bool>>();
    *hanging = true;
    forked_ranks::run(
        job,
        [&](int rank) {
            Communicator comm = create(job, rank);
            const Described described = describe(odd_model(), how.preset, how.options());
            Engine engine(described.spec, comm);
            fill(engine);
            engine.save(how.folder).wait(60);
            ++page_->arrived;
            while (page_->arrived < job.ranks) sched_yield();
            if (rank == 2) kill(getpid(), SIGKILL);
            try {
                for (;;) read_all(engine, described.ids);
            } catch (const Error &) {
            }
            vescomm_comm_t *less = nullptr;
            forked_ranks::require(vescomm_comm_shrink(comm.get(), nullptr, 0, &less), "shrink");
            const Communicator survivors(less);
            if (rank == 1) hanging_reads = hanging;
            vescomm_fsdp_recovery_t recovery = vescomm_fsdp_recovery_init();
            recovery.folder = how.folder.c_str();
            const vescomm_status_t status = vescomm_fsdp_recover(engine.get(), less, &recovery);
            const std::string text = vescomm_get_last_error();
            if (rank == 0) {
                *hanging = false;
                forked_ranks::expect(status == VESCOMM_ERROR_TIMEOUT, "the status of a timeout");
                forked_ranks::expect(text.find("rank 1") != std::string::npos, text.c_str());
            }
            forked_ranks::expect(status != VESCOMM_OK, "no rank has recovered");
        },
        {2});
    munmap(hanging, sizeof *hanging);
}

TEST_F(Recover, RefusesAnotherModel) {
    const Job job{3, 3};
    forked_ranks::run(
        job,
        [&](int rank) {
            Communicator comm = create(job, rank);
            const Elastic how;
            const Described described = describe(odd_model(), how.preset, how.options());
            Engine engine(described.spec, comm);
            fill(engine);
            ++page_->arrived;
            while (page_->arrived < job.ranks) sched_yield();
            if (rank == 0) kill(getpid(), SIGKILL);
            try {
                for (;;) read_all(engine, described.ids);
            } catch (const Error &) {
            }
            vescomm_comm_t *less = nullptr;
            forked_ranks::require(vescomm_comm_shrink(comm.get(), nullptr, 0, &less), "shrink");
            const Communicator survivors(less);
            std::vector<UnitModel> model = odd_model();
            model[1].parameters[0].shape = {12, 64};
            const Described other = describe(model, how.preset, how.options());
            vescomm_fsdp_recovery_t recovery = vescomm_fsdp_recovery_init();
            recovery.spec = other.spec.get();
            forked_ranks::expect(vescomm_fsdp_recover(engine.get(), less, &recovery) ==
                                     VESCOMM_ERROR_INVALID_ARGUMENT,
                                 "another model is an error");
            const std::string text = vescomm_get_last_error();
            forked_ranks::expect(text.find("block.0.up") != std::string::npos, text.c_str());
            model = odd_model();
            model.push_back({"more", {}});
            const Described more = describe(model, how.preset, how.options());
            recovery.spec = more.spec.get();
            forked_ranks::expect(vescomm_fsdp_recover(engine.get(), less, &recovery) ==
                                     VESCOMM_ERROR_INVALID_ARGUMENT,
                                 "a unit more is an error");
            recovery.spec = nullptr;
            forked_ranks::require(vescomm_fsdp_recover(engine.get(), less, &recovery), "recover");
            std::vector<float> first;
            for (std::size_t unit = 0; unit < described.ids.size(); ++unit)
                for (std::size_t i = 0; i < described.ids[unit].size(); ++i) {
                    const std::int64_t count = elements(odd_model()[unit].parameters[i]);
                    for (std::int64_t element = 0; element < count; ++element)
                        first.push_back(initial(described.ids[unit][i], element));
                }
            forked_ranks::expect(read_all(engine, described.ids) == first, "the initial values");
        },
        {0});
}

// Seeds of random tests.
class RecoverAtRandomMoments : public Recover {
protected:
    void run_seeds(int by_default, const std::function<void(std::mt19937 &)> &body) {
        const auto first = static_cast<unsigned>(
            vescomm::testing_support::number_in("VESCOMM_TEST_FIRST_SEED", 1));
        const auto count = static_cast<unsigned>(forked_ranks::repetitions(by_default));
        for (unsigned seed = first; seed < first + count && !HasFailure(); ++seed) {
            SCOPED_TRACE(::testing::Message() << "seed " << seed);
            munmap(page_, sizeof *page_);
            page_ = forked_ranks::make_shared_page<Page>();
            std::mt19937 random(seed);
            body(random);
            for (const Page::Rank &rank : page_->ranks) from_checkpoint_ += rank.from_checkpoint;
        }
        if (seconds_.empty()) return;
        std::ranges::sort(seconds_);
        std::printf(
            "%zu recoveries of ranks: median %.3f s, longest %.3f s; %d from a checkpoint\n",
            seconds_.size(), seconds_[seconds_.size() / 2], seconds_.back(), from_checkpoint_);
    }

    static int draw(std::mt19937 &random, int min, int max) {
        return std::uniform_int_distribution(min, max)(random);
    }

    int from_checkpoint_ = 0;
};

// A rank dies anywhere in a step: in a gather, a sum, the exchange of gradients, or an update.
TEST_F(RecoverAtRandomMoments, LoseNoStep) {
    run_seeds(8, [&](std::mt19937 &random) {
        const int ranks = draw(random, 2, 5);
        const Job job{ranks, draw(random, 0, 1) == 0 ? ranks : draw(random, 1, ranks)};
        const int victim = draw(random, 0, ranks - 1);
        const int at = draw(random, 0, 3);
        const double seconds = 1e-6 * std::exp(std::uniform_real_distribution(0.0, 11.0)(random));
        const Elastic how{.steps = 8};
        SCOPED_TRACE(::testing::Message()
                     << ranks << " ranks, " << job.per_node << " on a node, " << victim << " dies");
        run(how, job, {victim}, [=](Trainee &trainee, int rank) {
            if (rank == victim)
                trainee.before_step = [=](int step) {
                    if (step == at) die_in(seconds);
                    if (step == how.steps - 1) pause();
                };
        });
        EXPECT_EQ(from_checkpoint_, 0);
    });
}

// Further ranks die while the others shrink or recover. Shards may be lost; then the checkpoint
// has them.
TEST_F(RecoverAtRandomMoments, WithDeathsDuringRecovery) {
    run_seeds(8, [&](std::mt19937 &random) {
        const int ranks = draw(random, 4, 6);
        const Job job{ranks, draw(random, 0, 1) == 0 ? ranks : draw(random, 1, ranks)};
        std::vector<int> victims(static_cast<std::size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank) victims[static_cast<std::size_t>(rank)] = rank;
        std::ranges::shuffle(victims, random);
        victims.resize(static_cast<std::size_t>(draw(random, 2, ranks - 2)));
        std::vector<double> moments;
        for (std::size_t i = 0; i < victims.size(); ++i)
            moments.push_back(1e-6 * std::exp(std::uniform_real_distribution(0.0, 11.0)(random)));
        std::filesystem::remove_all(folder_);
        const Elastic how{.folder = make_folder(), .steps = 8};
        run(how, job, victims, [=](Trainee &trainee, int rank) {
            const auto at = std::ranges::find(victims, rank);
            if (at == victims.end()) return;
            const double seconds = moments[static_cast<std::size_t>(at - victims.begin())];
            if (at == victims.begin())
                trainee.before_step = [=](int step) {
                    if (step == 2) die_in(seconds);
                    if (step == how.steps - 1) pause();
                };
            else {
                trainee.before_recovery = [=, armed = false]() mutable {
                    if (!std::exchange(armed, true)) die_in(seconds);
                };
                // The first victim may die so late that this rank has not recovered yet.
                trainee.before_step = [=](int step) {
                    if (step == how.steps - 1) kill(getpid(), SIGKILL);
                };
            }
        });
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
