// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// An engine on device memory whose shards are in pinned host memory: the bits of host memory, with
// any optimizer.
#include <atomic>
#include <cmath>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

vescomm_fsdp_spec_options_t offloaded() {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.offload_to_host = 1;
    return options;
}

vescomm_fsdp_spec_options_t on_host(vescomm_fsdp_spec_options_t options) {
    options.offload_to_host = 0;
    options.offload_folder = nullptr;
    return options;
}

void expect_as_on_host(int ranks, const std::vector<UnitModel> &units, const std::string &preset,
                       const vescomm_fsdp_spec_options_t &options, const Training &training) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, " + preset + ", micro-batches " +
                 std::to_string(training.micro_batches));
    const Outcome host = train_on(ranks, units, preset, on_host(options), training);
    const Outcome device = train_on_devices(ranks, units, preset, options, training);
    EXPECT_EQ(device.parameters, host.parameters);
    EXPECT_EQ(device.norms, host.norms);
}

TEST(DeviceOffload, HasTheBitsOfTheHost) {
    for (const int ranks : {1, 3})
        expect_as_on_host(ranks, odd_model(), "zero3", offloaded(),
                          {.micro_batches = 2, .max_norm = 0.5});
    for (const char *preset : {"ddp", "zero1", "zero2", "hsdp:2"}) {
        vescomm_fsdp_spec_options_t options = offloaded();
        options.average = 1;
        options.compute_type = VESCOMM_BF16;
        options.gradient_type = VESCOMM_F32;
        expect_as_on_host(4, odd_model(), preset, options, {.micro_batches = 2});
    }
}

// More elements than are summed over replicas at once.
TEST(DeviceOffload, SumsLargeShardsOverReplicas) {
    const std::vector<UnitModel> units = {
        {"large", {{.name = "w", .shape = {(std::int64_t{9} << 20) + 3}}}}};
    for (const int average : {0, 1}) {
        vescomm_fsdp_spec_options_t options = offloaded();
        options.average = average;
        expect_as_on_host(2, units, "ddp", options, {.steps = 1});
    }
}

// Kernels cannot read the file: the double would report it.
TEST(DeviceOffload, KeepsMastersAndStatesInAFile) {
    const TemporaryFolder folder;
    vescomm_fsdp_spec_options_t options = offloaded();
    const std::string path = folder.path("");
    options.offload_folder = path.c_str();
    for (const int ranks : {1, 3})
        expect_as_on_host(ranks, odd_model(), "zero3", options,
                          {.micro_batches = 2, .max_norm = 0.5});
    for (const char *preset : {"zero1", "hsdp:2", "hpz:2"})
        expect_as_on_host(4, odd_model(), preset, options, {});
    options.gather_type = VESCOMM_I8;
    options.slots = 3;
    expect_as_on_host(2, odd_model(), "zero3", options, {.recompute = true});
    options.gather_type = 0;
    options.compute_type = options.master_type = VESCOMM_BF16;
    options.gradient_type = VESCOMM_F32;
    options.partner_copy = 1;
    expect_as_on_host(3, odd_model(), "zero3", options, {});
    EXPECT_TRUE(std::filesystem::is_empty(path));
}

TEST(DeviceOffload, HasAnyOptimizer) {
    const auto train_with = [](const vescomm_fsdp_spec_options_t &options) {
        Outcome outcome;
        run_ranks(2, [&](Communicator &comm) {
            Described described = describe(odd_model(), "zero3", options);
            vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
            settings.momentum = 0.9;
            // A kind of the program that cannot run on the device.
            vescomm_optimizer_kind_t kind = *vescomm_optimizer_get_sgd();
            kind.name = "of the program";
            kind.step = [](void *context, const void *of_group,
                           const vescomm_optimizer_run_t *run) {
                return vescomm_optimizer_get_sgd()->step(context, of_group, run);
            };
            described.spec.add_group(all_ids(described), &kind, &settings);
            const Outcome own = options.memory == VESCOMM_FSDP_DEVICE
                                    ? train_on_device(comm, described, {})
                                    : train(comm, described, {});
            if (comm.rank() == 0) outcome = own;
        });
        return outcome;
    };
    const Outcome host = train_with(on_host(offloaded()));
    const Outcome device = train_with(on_device(offloaded()));
    EXPECT_EQ(device.parameters, host.parameters);
    EXPECT_EQ(device.norms, host.norms);
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceOffload, HasShardsOfTheHost) {
    run_ranks(2, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "zero3", on_device(offloaded()));
        Engine engine(described.spec, comm);
        fill(engine);
        step_on_device(engine, comm, described, {}, 0, device);
        for (const auto role : {VESCOMM_FSDP_MASTER, VESCOMM_FSDP_GRADIENT, VESCOMM_FSDP_STATE}) {
            const vescomm_fsdp_view_t view = engine.shard(1, role);
            ASSERT_GT(view.elements, 0);
            EXPECT_FALSE(gpu_double::is_device_address(view.data));
            EXPECT_TRUE(std::isfinite(static_cast<const float *>(view.data)[0]));
        }
    });
}

// The host reads the sums, which kernels write.
TEST(DeviceOffload, HasCompleteGradientsForTheHost) {
    const std::vector<UnitModel> units = {{"a", {{.name = "w", .shape = {640}}}}};
    run_ranks(2, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(units, "zero3", on_device(offloaded()));
        Engine engine(described.spec, comm);
        fill(engine);
        for (int step = 0; step < 5; ++step) {
            std::atomic<bool> asked{false};
            EXPECT_EQ(gpu_double::launch(device.stream, "forward", {}, [&] { asked.wait(false); }),
                      0);
            micro_batch_on_device(engine, described.ids, {}, step, comm.rank(), 2, true, device);
            asked = true;
            asked.notify_all();
            const vescomm_fsdp_view_t view = engine.shard(0, VESCOMM_FSDP_GRADIENT);
            for (const auto &piece : engine.pieces(0))
                for (std::int64_t i = 0; i < piece.elements; ++i)
                    EXPECT_EQ(
                        read(view, piece.offset + i),
                        static_cast<float>(total_gradient(piece.parameter, piece.first + i, step)));
            engine.step(vescomm_fsdp_step_init(), device.stream);
        }
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceOffload, HasTheCheckpointsOfTheHost) {
    const TemporaryFolder folder;
    const Outcome expected =
        train_on(1, odd_model(), "zero3", vescomm_fsdp_spec_options_init(), {.steps = 2});
    run_ranks(3, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "zero3", on_device(offloaded()));
        Engine engine(described.spec, comm);
        fill(engine);
        step_on_device(engine, comm, described, {}, 0, device);
        engine.save(folder.path("c")).wait(60);
    });
    for (const bool offload : {true, false})
        run_ranks(2, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described = describe(
                odd_model(), "zero3", on_device(offload ? offloaded() : on_host(offloaded())));
            Engine engine(described.spec, comm);
            fill(engine);
            step_on_device(engine, comm, described, {}, 5, device);
            engine.load(folder.path("c"));
            step_on_device(engine, comm, described, {}, 1, device);
            EXPECT_EQ(read_all_on_device(engine, described.ids, device), expected.parameters);
        });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceOffload, BeginsAStepAgain) {
    run_ranks(2, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "zero3", on_device(offloaded()));
        Engine engine(described.spec, comm);
        fill(engine);
        step_on_device(engine, comm, described, {}, 0, device);
        comm.barrier();  // a rank that resets ends the step of the others
        engine.begin(VESCOMM_FSDP_LAST);
        engine.pre_forward(0, device.stream);
        engine.reset();
        step_on_device(engine, comm, described, {}, 1, device);
        EXPECT_EQ(read_all_on_device(engine, described.ids, device),
                  train_on(1, odd_model(), "zero3", vescomm_fsdp_spec_options_init(), {.steps = 2})
                      .parameters);
    });
}

TEST(DeviceOffload, IsRefusedOnHostMemory) {
    try {
        const Spec spec(offloaded());
        ADD_FAILURE() << "not refused";
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_STREQ(error.what(),
                     "vescomm_fsdp_spec_create: offload_to_host is 1 on host memory; set it to 0, "
                     "or memory to VESCOMM_FSDP_DEVICE");
    }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
