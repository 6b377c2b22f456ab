// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Values that enter and leave an engine on device memory: types, averages, kinds of parameters,
// shards, checkpoints, and what is left after a failure.
#include <cmath>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

vescomm_fsdp_spec_options_t options() {
    return vescomm_fsdp_spec_options_init();
}

TEST(DeviceValues, HaveTheBitsOfTheHostInOtherTypes) {
    // Sums of small whole numbers are exact in bf16 and f16, too.
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16})
        for (const vescomm_type_t gradient_type : {vescomm_type_t{0}, VESCOMM_F32}) {
            vescomm_fsdp_spec_options_t chosen = options();
            chosen.compute_type = type;
            chosen.gradient_type = gradient_type;
            const Training training{.micro_batches = 2, .push = gradient_type == 0};
            const Outcome host = train_on(3, odd_model(), "zero3", chosen, training);
            const Outcome device = train_on_devices(3, odd_model(), "zero3", chosen, training);
            EXPECT_EQ(device.parameters, host.parameters);
            EXPECT_EQ(device.norms, host.norms);
        }
}

TEST(DeviceValues, AreAveragedAsOnTheHost) {
    for (const char *preset : {"zero3", "hsdp:3", "ddp"}) {
        vescomm_fsdp_spec_options_t chosen = options();
        chosen.average = 1;
        const Training training{.micro_batches = 2};
        const Outcome host = train_on(3, odd_model(), preset, chosen, training);
        const Outcome device = train_on_devices(3, odd_model(), preset, chosen, training);
        EXPECT_EQ(device.parameters, host.parameters) << preset;
        EXPECT_EQ(device.norms, host.norms) << preset;
    }
}

// Gradients of 28,672 in f16, whose sum over three ranks and more is above the largest f16, 65,504.
TEST(DeviceValues, DoNotOverflowInSumsInF16) {
    for (const int ranks : {1, 2, 3, 4})
        for (const int average : {0, 1})
            for (const int micro_batches : {1, 2})
                run_ranks(ranks, [&](Communicator &comm) {
                    gpu_double::Device device(comm.rank());
                    vescomm_fsdp_spec_options_t chosen = on_device();
                    chosen.compute_type = VESCOMM_F16;
                    chosen.average = average;
                    const Described described =
                        describe({{"a", {{.name = "w", .shape = {36}}}}}, "zero3", chosen);
                    Engine engine(described.spec, comm);
                    fill(engine);
                    const float *gradients = device.upload(std::vector<float>(36, 28'672));
                    for (int batch = 1; batch <= micro_batches; ++batch) {
                        engine.begin(batch == micro_batches ? VESCOMM_FSDP_LAST : 0);
                        engine.pre_forward(0, device.stream);
                        engine.post_forward(0, device.stream);
                        engine.pre_backward(0, device.stream);
                        engine.push_gradient(0, gradients, VESCOMM_F32, device.stream);
                        engine.post_backward(0, device.stream);
                        engine.finish_backward(device.stream);
                    }
                    const double sum = 28'672.0 * micro_batches * (average ? 1 : ranks);
                    EXPECT_FLOAT_EQ(engine.step(vescomm_fsdp_step_init(), device.stream).norm,
                                    6 * sum)
                        << ranks << " ranks, average " << average;
                });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceValues, HaveTiedAndFrozenParameters) {
    std::vector<UnitModel> units = odd_model();
    units.back().parameters.push_back({.name = "tied", .shape = {37, 12}, .tied_to = 0});
    for (const bool push : {false, true}) {
        const Training training{.micro_batches = 2, .push = push};
        EXPECT_EQ(train_on_devices(2, units, "zero3", options(), training).parameters,
                  train_on(2, units, "zero3", options(), training).parameters);
    }
    run_ranks(2, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        Described described =
            describe({{"a",
                       {{.name = "base", .shape = {11}, .flags = VESCOMM_FSDP_FROZEN},
                        {.name = "w", .shape = {5}}}}},
                     "zero3", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        engine.begin(VESCOMM_FSDP_LAST);
        engine.pre_forward(0, device.stream);
        engine.post_forward(0, device.stream);
        engine.pre_backward(0, device.stream);
        write_on_device(engine, {described.ids[0][1]}, 0, comm.rank(), 2, false, device);
        engine.post_backward(0, device.stream);
        engine.finish_backward(device.stream);
        engine.step(vescomm_fsdp_step_init(), device.stream);
        const std::vector<float> seen = read_all_on_device(engine, described.ids, device);
        for (std::int64_t i = 0; i < 11; ++i)
            EXPECT_EQ(seen[static_cast<std::size_t>(i)], initial(described.ids[0][0], i));
        EXPECT_NE(seen[11], initial(described.ids[0][1], 0));
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceValues, StayInASkippedStep) {
    run_ranks(2, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described =
            describe({{"a", {{.name = "w", .shape = {5}}}}}, "zero3", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        engine.begin(VESCOMM_FSDP_LAST);
        engine.pre_forward(0, device.stream);
        engine.post_forward(0, device.stream);
        engine.pre_backward(0, device.stream);
        const std::vector<float> infinite(5, INFINITY);
        engine.push_gradient(0, device.upload(infinite), VESCOMM_F32, device.stream);
        engine.post_backward(0, device.stream);
        engine.finish_backward(device.stream);
        const vescomm_fsdp_step_t step = engine.step(vescomm_fsdp_step_init(), device.stream);
        EXPECT_EQ(step.skipped, 1);
        EXPECT_EQ(step.step, 0);
        const std::vector<float> seen = read_all_on_device(engine, described.ids, device);
        for (std::int64_t i = 0; i < 5; ++i)
            EXPECT_EQ(seen[static_cast<std::size_t>(i)], initial(0, i));
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceValues, AreShardsAtDeviceAddresses) {
    run_ranks(3, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "zero3", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        step_on_device(engine, comm, described, {}, 0, device);
        std::vector<float> all = read_all_on_device(engine, described.ids, device);
        std::size_t begin = 0;
        for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
            engine.pre_forward(unit, device.stream);
            const vescomm_fsdp_view_t master = engine.shard(unit, VESCOMM_FSDP_MASTER);
            const std::vector<float> values = device.read(
                static_cast<const float *>(master.data), static_cast<std::size_t>(master.elements));
            for (const auto &piece : engine.pieces(unit)) {
                std::size_t first = begin;
                for (const std::uint64_t id : described.ids[unit])
                    if (id < piece.parameter)
                        first += static_cast<std::size_t>(engine.parameter(id).elements);
                for (std::int64_t i = 0; i < piece.elements; ++i)
                    ASSERT_EQ(values[static_cast<std::size_t>(piece.offset + i)],
                              all[first + static_cast<std::size_t>(piece.first + i)]);
            }
            for (const std::uint64_t id : described.ids[unit])
                begin += static_cast<std::size_t>(engine.parameter(id).elements);
            engine.post_forward(unit, device.stream);
        }
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceValues, AreCheckpointsOfBothKindsOfMemory) {
    constexpr double wait_seconds = 60;
    for (const bool saves_on_device : {false, true}) {
        const TemporaryFolder folder;
        std::vector<float> saved, loaded;
        run_ranks(3, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described =
                describe(odd_model(), "zero3", saves_on_device ? on_device() : options());
            Engine engine(described.spec, comm);
            fill(engine);
            if (saves_on_device) {
                step_on_device(engine, comm, described, {}, 0, device);
            } else {
                micro_batch(engine, described.ids, {}, 0, comm.rank(), 3, true);
                engine.step();
            }
            engine.save(folder.path("c")).wait(wait_seconds);
            const auto all = saves_on_device ? read_all_on_device(engine, described.ids, device)
                                             : read_all(engine, described.ids);
            if (comm.rank() == 0) saved = all;
        });
        run_ranks(2, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described =
                describe(odd_model(), "zero3", saves_on_device ? options() : on_device());
            Engine engine(described.spec, comm);
            engine.load(folder.path("c"));
            EXPECT_EQ(engine.counters().steps, 1u);
            const auto all = saves_on_device ? read_all(engine, described.ids)
                                             : read_all_on_device(engine, described.ids, device);
            if (comm.rank() == 0) loaded = all;
            // The states of the optimizer, by the parameters of another step.
            Training training;
            if (saves_on_device) {
                micro_batch(engine, described.ids, training, 1, comm.rank(), 2, true);
                engine.step();
            } else {
                step_on_device(engine, comm, described, training, 1, device);
            }
            const auto next = saves_on_device ? read_all(engine, described.ids)
                                              : read_all_on_device(engine, described.ids, device);
            EXPECT_EQ(next, train_on(1, odd_model(), "zero3", options(), {.steps = 2}).parameters);
        });
        EXPECT_FALSE(saved.empty());
        EXPECT_EQ(saved, loaded);
    }
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceFailures, EndTheOtherRanks) {
    run_ranks(3, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "zero3", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        if (comm.rank() == 1) {
            step_on_device(engine, comm, described, {}, 0, device);
            // The unit is not open, which ends the step on all ranks.
            engine.begin(VESCOMM_FSDP_LAST);
            EXPECT_THROW(engine.post_forward(0, device.stream), Error);
        } else {
            // The error may come before this rank has made the update of rank 1.
            EXPECT_THROW(
                {
                    step_on_device(engine, comm, described, {}, 0, device);
                    step_on_device(engine, comm, described, {}, 1, device);
                },
                Error);
        }
        // The step begins again. Ranks without the update make it first.
        engine.reset();
        step_on_device(engine, comm, described, {}, 1, device);
        const std::vector<float> seen = read_all_on_device(engine, described.ids, device);
        EXPECT_EQ(seen, train_on(1, odd_model(), "zero3", options(), {.steps = 2}).parameters);
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
