// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// SGD and 8-bit AdamW on device memory have the bits of host memory.
#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;
using Options = vescomm_fsdp_spec_options_t;

// An optimizer and its settings.
struct Chosen {
    const char *name = "";
    const vescomm_optimizer_kind_t *kind = nullptr;
    vescomm_sgd_settings_t sgd = vescomm_sgd_settings_init();
    vescomm_adamw_settings_t adamw = vescomm_adamw_settings_init();

    const void *settings() const {
        return kind == vescomm_optimizer_get_sgd() ? static_cast<const void *>(&sgd) : &adamw;
    }
};

Chosen adam8bit() {
    Chosen chosen{.name = "adam8bit", .kind = vescomm_optimizer_get_adam8bit()};
    chosen.adamw.learning_rate = 0.02;
    return chosen;
}

Chosen sgd(const char *name, double momentum = 0) {
    Chosen chosen{.name = name, .kind = vescomm_optimizer_get_sgd()};
    chosen.sgd.learning_rate = 0.003;
    chosen.sgd.momentum = momentum;
    return chosen;
}

std::vector<Chosen> all_kinds() {
    std::vector<Chosen> all = {adam8bit(), sgd("sgd"), sgd("sgd with momentum", 0.9),
                               sgd("sgd with nesterov", 0.7)};
    all[1].sgd.weight_decay = 0.1;
    all[2].sgd.dampening = 0.3;
    all[3].sgd.nesterov = 1;
    all[3].sgd.weight_decay = 0.1;
    all[3].sgd.decoupled = 1;
    return all;
}

// Parameters of many blocks of moments, which begin again at each matrix: more matrices than one
// launch has pieces, and matrices that blocks divide.
std::vector<UnitModel> model() {
    std::vector<UnitModel> units = odd_model();
    units.push_back({"large",
                     {{.name = "matrix", .shape = {500, 7}},
                      {.name = "small", .shape = {140, 3, 11}, .batch_dimensions = 1},
                      {.name = "divided", .shape = {5, 16, 32}, .batch_dimensions = 1}}});
    return units;
}

Described described_with(const Chosen &chosen, const std::string &preset, const Options &options) {
    Described described = describe(model(), preset, options);
    described.spec.add_group(all_ids(described), chosen.kind, chosen.settings());
    return described;
}

constexpr Training training{.steps = 3, .micro_batches = 2, .max_norm = 30};

std::vector<float> trained_on_host(const Chosen &chosen, Options options = {}, int ranks = 1) {
    if (options.struct_size == 0) options = vescomm_fsdp_spec_options_init();
    options.partner_copy = 0;
    std::vector<float> seen;
    run_ranks(ranks, [&](Communicator &comm) {
        const Outcome outcome = train(comm, described_with(chosen, "zero3", options), training);
        if (comm.rank() == 0) seen = outcome.parameters;
    });
    return seen;
}

void expect_parameters(const Chosen &chosen, int ranks, const std::string &preset,
                       const Options &options, const std::vector<float> &expected) {
    SCOPED_TRACE(::testing::Message()
                 << chosen.name << " on " << ranks << " ranks, " << preset << ", master_type "
                 << options.master_type << ", rounding " << options.master_rounding);
    run_ranks(ranks, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = described_with(chosen, preset, on_device(options));
        Engine engine(described.spec, comm);
        fill(engine);
        for (int step = 0; step < training.steps; ++step)
            step_on_device(engine, comm, described, training, step, device);
        // Compares the copies of partners, which the host updates.
        if (options.partner_copy != 0) engine.check_replicas();
        EXPECT_TRUE(read_all_on_device(engine, described.ids, device) == expected);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceOwnKinds, HaveTheBitsOfTheHost) {
    const Options plain = vescomm_fsdp_spec_options_init();
    Options copied = plain;
    copied.partner_copy = 1;
    for (const Chosen &chosen : all_kinds()) {
        const std::vector<float> expected = trained_on_host(chosen);
        expect_parameters(chosen, 3, "zero3", plain, expected);
        // The kinds that have states.
        if (chosen.kind == vescomm_optimizer_get_sgd() && chosen.sgd.dampening == 0) continue;
        expect_parameters(chosen, 1, "zero3", plain, expected);
        expect_parameters(chosen, 2, "zero1", copied, expected);
        expect_parameters(chosen, 5, "zero3", copied, expected);
        expect_parameters(chosen, 4, "hsdp:2", plain, expected);
    }
}

TEST(DeviceOwnKinds, HaveTheBitsOfTheHostWithNarrowMasters) {
    for (const Chosen &chosen : {adam8bit(), sgd("sgd with momentum", 0.9)})
        for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16})
            for (const auto rounding :
                 {VESCOMM_FSDP_ROUND_NEAREST, VESCOMM_FSDP_ROUND_STOCHASTIC}) {
                Options options = vescomm_fsdp_spec_options_init();
                options.compute_type = options.master_type = type;
                options.gradient_type = VESCOMM_F32;
                options.master_rounding = rounding;
                options.seed = 5;
                const std::vector<float> expected = trained_on_host(chosen, options);
                options.partner_copy = 1;
                expect_parameters(chosen, 3, "zero3", options, expected);
                if (type != VESCOMM_BF16 || rounding != VESCOMM_FSDP_ROUND_STOCHASTIC) continue;
                expect_parameters(chosen, 2, "zero1", options, expected);
                options.partner_copy = 0;
                expect_parameters(chosen, 1, "zero3", options, expected);
            }
}

TEST(DeviceOwnKinds, StatesTravelThroughCheckpoints) {
    for (const Chosen &chosen : {adam8bit(), sgd("sgd with momentum", 0.9)}) {
        const TemporaryFolder folder;
        const std::vector<float> expected = trained_on_host(chosen);
        const Options on_host = vescomm_fsdp_spec_options_init();
        run_ranks(3, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described = described_with(chosen, "zero3", on_device());
            Engine engine(described.spec, comm);
            fill(engine);
            step_on_device(engine, comm, described, training, 0, device);
            engine.save(folder.path("c")).wait(60);
        });
        // One more step on the host, and the last one on other devices.
        run_ranks(2, [&](Communicator &comm) {
            const Described described = described_with(chosen, "zero3", on_host);
            Engine engine(described.spec, comm);
            engine.load(folder.path("c"));
            for (int micro = 0; micro < training.micro_batches; ++micro)
                micro_batch(engine, described.ids, training, 1,
                            comm.rank() * training.micro_batches + micro,
                            comm.ranks() * training.micro_batches,
                            micro + 1 == training.micro_batches);
            vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
            arguments.max_norm = training.max_norm;
            engine.step(arguments);
            engine.save(folder.path("d")).wait(60);
        });
        run_ranks(5, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described = described_with(chosen, "zero3", on_device());
            Engine engine(described.spec, comm);
            engine.load(folder.path("d"));
            step_on_device(engine, comm, described, training, 2, device);
            EXPECT_TRUE(read_all_on_device(engine, described.ids, device) == expected);
        });
    }
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// Parts of a shard with another optimizer each are updated beside one another.
TEST(DeviceOwnKinds, ShareAUnit) {
    const auto described_groups = [](const Options &options) {
        Described described = describe(model(), "zero3", options);
        std::vector<std::vector<std::uint64_t>> groups(3);
        for (const std::uint64_t id : all_ids(described)) groups[id % 3].push_back(id);
        const Chosen first = adam8bit(), second = sgd("sgd", 0.9);
        described.spec.add_group(groups[0], first.kind, first.settings());
        described.spec.add_group(groups[1], second.kind, second.settings());
        return described;  // the others have AdamW
    };
    std::vector<float> expected;
    run_ranks(1, [&](Communicator &comm) {
        expected =
            train(comm, described_groups(vescomm_fsdp_spec_options_init()), training).parameters;
    });
    for (const int ranks : {1, 3})
        run_ranks(ranks, [&](Communicator &comm) {
            const Outcome outcome = train_on_device(comm, described_groups(on_device()), training);
            EXPECT_TRUE(outcome.parameters == expected);
        });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// The states of 8-bit AdamW are 2.03 bytes an element on the device, too.
TEST(DeviceOwnKinds, TakeTheMemoryOfTheReport) {
    for (const Chosen &chosen : all_kinds())
        run_ranks(3, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described = described_with(chosen, "zero3", on_device());
            Engine engine(described.spec, comm);
            fill(engine);
            step_on_device(engine, comm, described, training, 0, device);
            const auto report = described.spec.report(3, comm.rank(), 2);
            EXPECT_EQ(engine.counters().allocated_bytes, report.peak_bytes) << chosen.name;
            EXPECT_EQ(report.device_bytes, report.peak_bytes) << chosen.name;
        });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
