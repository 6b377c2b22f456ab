// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Waits of the engine for a rank that does not come: they end at the timeout, or when the program
// says so, with and without replicas.
#include <atomic>
#include <latch>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

struct Meshed {
    const char *preset;
    int ranks;
};

const std::vector<Meshed> meshes = {{"zero3", 3}, {"ddp", 3}, {"hsdp:2", 4}, {"mics:3", 6}};

// Trains one step on all ranks. The last rank does not begin the second one until the others have
// their errors, which `expect` gets on each of them.
void leave_one_rank_behind(
    const Meshed &mesh, double timeout_seconds,
    const std::function<void(int rank, const std::function<void()> &step)> &expect) {
    std::latch ended(mesh.ranks - 1);
    run_ranks(
        mesh.ranks,
        [&](Communicator &comm) {
            const Described described = describe(odd_model(), mesh.preset);
            Engine engine(described.spec, comm);
            fill(engine);
            const auto step = [&] {
                micro_batch(engine, described.ids, {}, 0, comm.rank(), mesh.ranks, true);
                engine.step();
            };
            step();
            if (comm.rank() == mesh.ranks - 1) return ended.wait();
            expect(comm.rank(), step);
            ended.count_down();
        },
        {}, timeout_seconds);
}

TEST(Waits, EndAtTheTimeoutAndNameTheRank) {
    for (const Meshed &mesh : meshes) {
        SCOPED_TRACE(mesh.preset);
        const std::string absent = "rank " + std::to_string(mesh.ranks - 1);
        leave_one_rank_behind(mesh, 1, [&](int, const std::function<void()> &step) {
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
        leave_one_rank_behind(mesh, 60, [&](int rank, const std::function<void()> &step) {
            impatient = rank == 0;
            try {
                step();
                ADD_FAILURE() << "the step succeeded without a rank";
            } catch (const Error &error) {
                EXPECT_EQ(error.status(), VESCOMM_ERROR_ABORTED) << error.what();
                EXPECT_NE(std::string(error.what()).find("vescomm_set_interrupt() ended the wait"),
                          std::string::npos)
                    << error.what();
            }
            impatient = false;
        });
    }
    check(vescomm_set_interrupt(nullptr, nullptr));
}

}  // namespace
}  // namespace vescomm::fsdp::testing
