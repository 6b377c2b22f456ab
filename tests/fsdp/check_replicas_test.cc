// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// vescomm_fsdp_check_replicas() on several ranks.
#include "fsdp/observed_sgd.h"

namespace vescomm::fsdp::testing {
namespace {

vescomm_fsdp_spec_options_t with_copies() {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.partner_copy = 1;
    return options;
}

// The sentence of a check; "" if all is equal.
std::string check_of(Engine &engine) {
    try {
        engine.check_replicas();
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), VESCOMM_ERROR_MISMATCH) << error.what();
        return error.what();
    }
    return {};
}

TEST(CheckReplicas, FindsNothingAfterTraining) {
    const struct {
        int ranks;
        const char *mesh;
        vescomm_fsdp_spec_options_t options;
    } cases[] = {{1, "zero3", vescomm_fsdp_spec_options_init()},
                 {3, "ddp", vescomm_fsdp_spec_options_init()},
                 {5, "zero3", with_copies()},
                 {6, "mics:3", vescomm_fsdp_spec_options_init()},
                 {8, "r:2 r:2 3:2", vescomm_fsdp_spec_options_init()}};
    for (const auto &one : cases)
        run_ranks(one.ranks, [&](Communicator &comm) {
            const Described described = describe(odd_model(), one.mesh, one.options);
            Engine engine(described.spec, comm);
            EXPECT_EQ(check_of(engine), "");
            fill(engine);
            for (int step = 0; step < 2; ++step) {
                micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
                engine.step();
                EXPECT_EQ(check_of(engine), "") << one.mesh;
            }
        });
}

// An optimizer of one rank computes something else.
TEST(CheckReplicas, NamesUnitAndRank) {
    run_ranks(6, [](Communicator &comm) {
        Described described = describe(odd_model(), "hsdp:2");
        ObservedSgd sgd;
        sgd.add_to(described);
        const std::uint64_t wrong = described.ids[3][1];  // the bias of block.2
        bool changed = false;
        sgd.before = [&](const vescomm_optimizer_run_t &run) {
            for (std::size_t i = 0; i < run.piece_count; ++i) {
                const auto &piece = *vescomm_optimizer_piece_at(run.pieces, i);
                if (comm.rank() / 2 != 1 || piece.parameter != wrong) continue;
                run.master[piece.offset] += 1;
                changed = true;
            }
            return 0;
        };
        Engine engine(described.spec, comm);
        fill(engine);
        micro_batch(engine, described.ids, {}, 0, comm.rank(), comm.ranks(), true);
        engine.step();
        const std::string found = check_of(engine);
        EXPECT_NE(found.find("the masters of unit \"block.2\""), std::string::npos) << found;
        EXPECT_TRUE(found.find("of rank 2 differ") != std::string::npos ||
                    found.find("of rank 3 differ") != std::string::npos)
            << found;
        // The engine goes on: the same sentence, and a checkpoint mends it.
        EXPECT_EQ(check_of(engine), found);
        EXPECT_TRUE(comm.rank() / 2 == 1 || !changed);
        fill(engine);
        EXPECT_EQ(check_of(engine), "");
    });
}

TEST(CheckReplicas, FindsAPartnerCopyThatDiffers) {
    run_ranks(3, [](Communicator &comm) {
        Described described = describe(odd_model(), "zero3", with_copies());
        ObservedSgd sgd;
        sgd.add_to(described);
        // An optimizer with a state outside its states: each call has another result.
        int calls = 0;
        sgd.before = [&](const vescomm_optimizer_run_t &run) {
            run.master[0] += static_cast<float>(++calls);
            return 0;
        };
        Engine engine(described.spec, comm);
        fill(engine);
        micro_batch(engine, described.ids, {}, 0, comm.rank(), comm.ranks(), true);
        engine.step();
        const std::string found = check_of(engine);
        EXPECT_NE(found.find("(in its partner copy)"), std::string::npos) << found;
    });
}

TEST(CheckReplicas, IsAnErrorWhileAUnitIsOpen) {
    run_ranks(2, [](Communicator &comm) {
        const Described described = describe(odd_model(), "ddp");
        Engine engine(described.spec, comm);
        fill(engine);
        engine.begin(VESCOMM_FSDP_EVAL);
        engine.pre_forward(0);
        comm.barrier();  // the error ends the gathers of all ranks
        EXPECT_THROW(engine.check_replicas(), Error);
        comm.barrier();
        engine.reset();
        EXPECT_EQ(check_of(engine), "");
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
