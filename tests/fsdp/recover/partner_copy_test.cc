// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies of shards on other ranks, without deaths: memory, and no effect on the training.
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

vescomm_fsdp_spec_options_t with_copies() {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.partner_copy = 1;
    return options;
}

TEST(PartnerCopy, IsAllocatedAsReported) {
    for (const char *preset : {"zero3", "zero1", "ddp"})
        for (const int ranks : {1, 2, 3, 5})
            run_ranks(ranks, [&](Communicator &comm) {
                const Described described = describe(odd_model(), preset, with_copies());
                const vescomm_fsdp_report_t report = described.spec.report(ranks, comm.rank());
                const vescomm_fsdp_report_t plain =
                    describe(odd_model(), preset).spec.report(ranks, comm.rank());
                const bool copies = ranks > 1 && std::string(preset) != "ddp";
                EXPECT_EQ(report.partner_bytes > 0, copies);
                EXPECT_EQ(report.partner_bytes_per_step, copies ? report.gradient_bytes : 0);
                EXPECT_EQ(report.peak_bytes, plain.peak_bytes + report.partner_bytes);
                EXPECT_EQ(report.persistent_bytes, plain.persistent_bytes);
                const int before = (comm.rank() + ranks - 1) % ranks;
                EXPECT_EQ(report.partner_bytes,
                          copies ? described.spec.report(ranks, before).persistent_bytes : 0);
                Engine engine(described.spec, comm);
                EXPECT_EQ(engine.counters().allocated_bytes, report.peak_bytes);
            });
}

TEST(PartnerCopy, DoesNotChangeTheTraining) {
    const Training training{.steps = 4, .micro_batches = 2, .max_norm = 30};
    const Outcome plain =
        train_on(1, odd_model(), "zero3", vescomm_fsdp_spec_options_init(), training);
    for (const int ranks : {2, 3, 5})
        for (const char *preset : {"zero3", "zero1", "zero2"}) {
            const Outcome copied = train_on(ranks, odd_model(), preset, with_copies(), training);
            EXPECT_EQ(copied.parameters, plain.parameters);
            EXPECT_EQ(copied.norms, plain.norms);
        }
    const Outcome on_nodes =
        train_on(5, odd_model(), "zero3", with_copies(), training, {0, 0, 1, 1, 2});
    EXPECT_EQ(on_nodes.parameters, plain.parameters);
}

TEST(PartnerCopy, MustBeTheSameOnAllRanks) {
    run_ranks(2, [&](Communicator &comm) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.partner_copy = comm.rank();
        const Described described = describe(odd_model(), "zero3", options);
        try {
            const Engine engine(described.spec, comm);
            ADD_FAILURE() << "ranks differ in partner_copy";
        } catch (const Error &error) {
            EXPECT_EQ(error.status(), VESCOMM_ERROR_MISMATCH) << error.what();
        }
    });
}

// Settings of groups that change between steps apply to the copies too: after reset() and steps
// with other settings the parameters are those of one rank.
TEST(PartnerCopy, FollowsResetAndSettings) {
    const auto train = [](Communicator &comm, std::vector<float> &parameters) {
        const Described described = describe(odd_model(), "zero3", with_copies());
        Engine engine(described.spec, comm);
        fill(engine);
        for (int step = 0; step < 3; ++step) {
            if (step == 1) {
                micro_batch(engine, described.ids, {}, 7, comm.rank(), comm.ranks(), true);
                check(vescomm_barrier(comm.get()));
                engine.reset();
                vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
                settings.learning_rate = 0.5;
                engine.set_group(0, &settings);
            }
            micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
            engine.step();
        }
        parameters = read_all(engine, described.ids);
    };
    std::vector<float> alone;
    run_ranks(1, [&](Communicator &comm) { train(comm, alone); });
    run_ranks(3, [&](Communicator &comm) {
        std::vector<float> mine;
        train(comm, mine);
        EXPECT_EQ(mine, alone);
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
