// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Waits of the engine for a rank that does not come: they end at the timeout, when the program says
// so, or when the rank frees its engine instead; with and without replicas.
#include <atomic>
#include <deque>
#include <latch>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

struct Meshed {
    const char *preset;
    int ranks;
    int expert_ranks = 1;
};

const std::vector<Meshed> meshes = {{"zero3", 3}, {"ddp", 3}, {"hsdp:2", 4}, {"mics:3", 6}};

// The last rank, until the others have their errors.
enum class Last { waits, frees_its_engine, aborts_the_communicator };

// Trains one step on all ranks. The last rank does not begin the second one. `expect` gets that
// step on each of the others.
void leave_one_rank_behind(
    const Meshed &mesh, Last last, double timeout_seconds,
    const std::function<void(int rank, const std::function<void()> &step)> &expect) {
    std::latch trained(mesh.ranks), ended(mesh.ranks - 1);
    run_ranks(
        mesh.ranks,
        [&](Communicator &comm) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.expert_ranks = mesh.expert_ranks;
            const Described described = describe(odd_model(), mesh.preset, options);
            Engine engine(described.spec, comm);
            fill(engine);
            const auto step = [&] {
                micro_batch(engine, described.ids, {}, 0, comm.rank(), mesh.ranks, true);
                engine.step();
            };
            step();
            trained.arrive_and_wait();  // an abort ends the first step of no rank
            if (comm.rank() == mesh.ranks - 1 && last == Last::aborts_the_communicator)
                check(vescomm_comm_abort(comm.get(), "a watchdog ends the job"));
            if (comm.rank() == mesh.ranks - 1)
                return last == Last::frees_its_engine ? static_cast<void>(0) : ended.wait();
            expect(comm.rank(), step);
            ended.count_down();
        },
        {}, timeout_seconds);
}

TEST(Waits, EndAtTheTimeoutAndNameTheRank) {
    for (const Meshed &mesh : meshes) {
        SCOPED_TRACE(mesh.preset);
        const std::string absent = "rank " + std::to_string(mesh.ranks - 1);
        leave_one_rank_behind(mesh, Last::waits, 1, [&](int, const std::function<void()> &step) {
            try {
                step();
                ADD_FAILURE() << "the step succeeded without a rank";
            } catch (const Error &error) {
                // The first rank whose deadline passes aborts the waits of the others.
                EXPECT_TRUE(error.status() == VESCOMM_ERROR_TIMEOUT ||
                            error.status() == VESCOMM_ERROR_ABORTED)
                    << error.what();
                const std::string why = error.what();
                EXPECT_NE(why.find("waited 1 s for"), std::string::npos) << why;
                EXPECT_NE(why.find(absent), std::string::npos) << why;
            }
        });
    }
}

// Ranks are threads: only the threads that set this end their waits.
thread_local bool impatient = false;

TEST(Waits, EndWhenTheProgramInterruptsThem) {
    check(vescomm_set_interrupt([](void *) { return impatient ? 1 : 0; }, nullptr));
    for (const Meshed &mesh : meshes) {
        SCOPED_TRACE(mesh.preset);
        // The timeout is far above the duration of the test.
        leave_one_rank_behind(
            mesh, Last::waits, 60, [&](int rank, const std::function<void()> &step) {
                impatient = rank == 0;
                try {
                    step();
                    ADD_FAILURE() << "the step succeeded without a rank";
                } catch (const Error &error) {
                    EXPECT_EQ(error.status(), VESCOMM_ERROR_ABORTED) << error.what();
                    EXPECT_NE(
                        std::string(error.what()).find("vescomm_set_interrupt() ended the wait"),
                        std::string::npos)
                        << error.what();
                }
                impatient = false;
            });
    }
    check(vescomm_set_interrupt(nullptr, nullptr));
}

void expect_that_it_names_the_rank_that_frees(const std::function<void()> &call, int rank) {
    try {
        call();
        ADD_FAILURE() << "the call succeeded without a rank";
    } catch (const Error &error) {
        EXPECT_TRUE(error.status() == VESCOMM_ERROR_MISMATCH ||
                    error.status() == VESCOMM_ERROR_ABORTED)
            << error.what();
        const std::string why = error.what();
        EXPECT_NE(why.find("rank " + std::to_string(rank) + " free;"), std::string::npos) << why;
    }
}

// Data that ends before that of the other ranks, for example. The timeout is far above the duration
// of the test.
TEST(Waits, EndWhenARankFreesItsEngine) {
    std::vector<Meshed> all = meshes;
    all.insert(all.end(), {{"hpz:2", 4}, {"zero3", 4, 2}, {"hsdp:4", 8, 2}});
    for (const Meshed &mesh : all) {
        SCOPED_TRACE(mesh.preset);
        leave_one_rank_behind(mesh, Last::frees_its_engine, 60,
                              [&](int, const std::function<void()> &step) {
                                  expect_that_it_names_the_rank_that_frees(step, mesh.ranks - 1);
                              });
    }
}

// The program knows no other communicator than its own. The timeout is far above the duration of
// the test.
TEST(Waits, EndWhenTheCommunicatorOfTheProgramIsAborted) {
    for (const Meshed &mesh : meshes) {
        SCOPED_TRACE(mesh.preset);
        leave_one_rank_behind(
            mesh, Last::aborts_the_communicator, 60, [&](int, const std::function<void()> &step) {
                try {
                    step();
                    ADD_FAILURE() << "the step succeeded without a rank";
                } catch (const Error &error) {
                    EXPECT_EQ(error.status(), VESCOMM_ERROR_ABORTED) << error.what();
                    EXPECT_NE(std::string(error.what()).find("a watchdog ends the job"),
                              std::string::npos)
                        << error.what();
                }
            });
    }
}

// Ranks send copies of their shards to one another after they have set them.
TEST(Waits, EndWhenARankFreesItsEngineAndOthersInitialiseTheirs) {
    constexpr int ranks = 3;
    run_ranks(ranks, [](Communicator &comm) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.partner_copy = 1;
        Engine engine(describe(odd_model(), "zero3", options).spec, comm);
        fill(engine);
        if (comm.rank() < ranks - 1)
            expect_that_it_names_the_rank_that_frees([&] { fill(engine); }, ranks - 1);
    });
}

// A unit with parameters of three types, so that its gradients are three sums. Ranks come to the
// end of its backward pass one after another, each when the one before has left it.
TEST(Waits, PostBackwardWaitsForNoOtherRank) {
    std::vector<UnitModel> model = odd_model();
    model[2].parameters[0].type = VESCOMM_BF16;
    model[2].parameters[1].type = VESCOMM_F16;
    for (const int micro_batches : {1, 2})
        for (const int ranks : {2, 3}) {
            std::deque<std::latch> left;
            for (int rank = 0; rank < ranks; ++rank) left.emplace_back(1);
            run_ranks(ranks, [&](Communicator &comm) {
                vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
                options.gradient_slots = 6;  // no unit waits for the slot of another one
                const Described described = describe(model, "zero3", options);
                Engine engine(described.spec, comm);
                fill(engine);
                const Training training{.micro_batches = micro_batches};
                // The first steps create the sums of each slot.
                for (int step = 0; step < 2; ++step) {
                    for (int micro = 0; micro < micro_batches; ++micro)
                        micro_batch(engine, described.ids, training, step, comm.rank(), ranks,
                                    micro + 1 == micro_batches);
                    engine.step();
                }
                engine.begin(VESCOMM_FSDP_LAST);
                engine.pre_forward(2);
                engine.post_forward(2);
                engine.pre_backward(2);
                write_gradients(engine, described.ids[2], 0, comm.rank(), ranks);
                if (comm.rank() > 0) left[static_cast<std::size_t>(comm.rank()) - 1].wait();
                engine.post_backward(2);
                left[static_cast<std::size_t>(comm.rank())].count_down();
                engine.finish_backward();
                engine.step();
            });
        }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
