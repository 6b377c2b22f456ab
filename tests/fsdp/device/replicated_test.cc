// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Replicated parameters on device memory: the bits of host memory.
#include "fsdp/replicated.h"

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;
using Options = vescomm_fsdp_spec_options_t;

constexpr double wait_seconds = 60;

Options options(bool offload = false) {
    Options options = vescomm_fsdp_spec_options_init();
    options.offload_to_host = offload ? 1 : 0;
    return options;
}

Options on_host(Options options) {
    options.offload_to_host = 0;
    return options;
}

void expect_as_on_host(int ranks, const std::string &mesh, const Options &options,
                       const std::vector<UnitModel> &units = with_replicated(),
                       const Training &training = {.micro_batches = 2, .max_norm = 30}) {
    SCOPED_TRACE(::testing::Message()
                 << ranks << " ranks, " << mesh << ", offload " << options.offload_to_host
                 << ", compute_type " << options.compute_type << ", gradient_type "
                 << options.gradient_type << ", average " << options.average);
    const Outcome host = train_on(ranks, units, mesh, on_host(options), training);
    const Outcome device = train_on_devices(ranks, units, mesh, options, training);
    ASSERT_FALSE(host.parameters.empty());
    EXPECT_EQ(device.parameters, host.parameters);
    EXPECT_EQ(device.norms, host.norms);
}

TEST(DeviceReplicated, HaveTheBitsOfTheHost) {
    for (const bool offload : {false, true}) {
        for (const int ranks : {1, 2, 3, 5}) expect_as_on_host(ranks, "zero3", options(offload));
        for (const char *preset : {"ddp", "zero1", "zero2", "hsdp:2", "hpz:2"})
            expect_as_on_host(4, preset, options(offload));
    }
    expect_as_on_host(6, "r:0 r:1 3:3", options());
}

TEST(DeviceReplicated, MayBeAllParameters) {
    for (const bool offload : {false, true})
        for (const char *preset : {"zero2", "hpz:2", "hsdp:2"})
            expect_as_on_host(4, preset, options(offload), all_replicated());
    for (const int ranks : {2, 3, 5})
        expect_as_on_host(ranks, "zero3", options(), all_replicated());
}

// Sums over all ranks are averaged as on host memory, also by a factor that rounds.
TEST(DeviceReplicated, HaveTheBitsOfTheHostInOtherTypes) {
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16})
        for (const vescomm_type_t gradient_type : {vescomm_type_t{0}, VESCOMM_F32}) {
            Options chosen = options(type == VESCOMM_F16);
            chosen.compute_type = type;
            chosen.gradient_type = gradient_type;
            const Training training{.micro_batches = 2, .push = gradient_type == 0};
            chosen.average = 1;
            expect_as_on_host(3, "zero3", chosen, with_replicated(), training);
            if (gradient_type == 0)
                expect_as_on_host(6, "hsdp:3", chosen, with_replicated(), training);
        }
    Options chosen = options();
    chosen.gradient_type = VESCOMM_F16;
    expect_as_on_host(3, "zero3", chosen, all_replicated());
    // A replicated bucket is the first one in the slots.
    const std::vector<UnitModel> units = {
        {"a",
         {{.name = "v", .shape = {130}, .flags = VESCOMM_FSDP_REPLICATED},
          {.name = "w", .shape = {70}}}}};
    chosen.compute_type = VESCOMM_BF16;
    chosen.gradient_type = VESCOMM_F32;
    expect_as_on_host(2, "zero3", chosen, units);
}

TEST(DeviceReplicated, HaveTheBitsOfTheHostWithOtherOptions) {
    for (const int slots : {1, 3, 100}) {
        Options chosen = options(slots == 3);
        chosen.slots = chosen.gradient_slots = slots;
        chosen.order = slots % 3;
        expect_as_on_host(2, "zero3", chosen, with_replicated(),
                          {.micro_batches = 2, .recompute = true});
    }
    for (const bool offload : {false, true}) {
        Options chosen = options(offload);
        chosen.keep_gathered = chosen.keep_gradients = 1;
        expect_as_on_host(3, "zero3", chosen);
        chosen = options(offload);
        chosen.partner_copy = 1;
        expect_as_on_host(3, "zero3", chosen);
        chosen = options(offload);
        chosen.gather_type = VESCOMM_I8;
        expect_as_on_host(3, "zero3", chosen);
        expect_as_on_host(4, "hpz:2", chosen);
        chosen = options(offload);
        chosen.compute_type = chosen.master_type = VESCOMM_BF16;
        chosen.gradient_type = VESCOMM_F32;
        chosen.seed = 5;
        expect_as_on_host(3, "zero3", chosen);
        chosen.compute_type = VESCOMM_F32;
        expect_as_on_host(3, "zero3", chosen);
    }
}

TEST(DeviceReplicated, MayBeTiedAndFrozen) {
    for (const bool offload : {false, true})
        for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16}) {
            Options chosen = options(offload);
            chosen.compute_type = type;
            const auto train = [&](std::uint32_t flags, bool on_devices) {
                std::vector<float> seen;
                run_ranks(3, [&](Communicator &comm) {
                    gpu_double::Device device(comm.rank());
                    void *stream = on_devices ? device.stream : nullptr;
                    const Described described =
                        describe(tied_and_frozen(flags), "zero3",
                                 on_devices ? on_device(chosen) : on_host(chosen));
                    Engine engine(described.spec, comm);
                    fill(engine);
                    for (int step = 0; step < 2; ++step) {
                        engine.begin(VESCOMM_FSDP_LAST);
                        for (const std::uint64_t unit : {0, 1}) {
                            engine.pre_forward(unit, stream);
                            if (on_devices)
                                read_on_device(engine, described.ids[unit], device.stream);
                            engine.post_forward(unit, stream);
                        }
                        for (const std::uint64_t unit : {1, 0}) {
                            engine.pre_backward(unit, stream);
                            const std::uint64_t id = described.ids[unit][unit == 0 ? 1 : 0];
                            if (on_devices)
                                write_on_device(engine, {id}, step, comm.rank(), 3, false, device);
                            else write_gradients(engine, {id}, step, comm.rank(), 3);
                            engine.post_backward(unit, stream);
                        }
                        engine.finish_backward(stream);
                        engine.step(vescomm_fsdp_step_init(), stream);
                    }
                    const std::vector<float> all =
                        on_devices ? read_all_on_device(engine, described.ids, device)
                                   : read_all(engine, described.ids);
                    if (comm.rank() == 0) seen = all;
                });
                return seen;
            };
            const std::vector<float> sharded = train(0, false);
            ASSERT_FALSE(sharded.empty());
            EXPECT_EQ(train(VESCOMM_FSDP_REPLICATED, false), sharded);
            EXPECT_EQ(train(VESCOMM_FSDP_REPLICATED, true), sharded);
        }
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// Allocated bytes, the part of the device, and what each rank sends.
TEST(DeviceReplicated, CountInTheReportAsTheEngineCounts) {
    for (const bool offload : {false, true})
        for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16})
            for (const char *preset : {"zero3", "hsdp:2", "hpz:2", "ddp"}) {
                if (offload && preset[0] != 'h') continue;
                run_ranks(4, [&](Communicator &comm) {
                    SCOPED_TRACE(preset);
                    gpu_double::Device device(comm.rank());
                    Options chosen = on_device(options(offload));
                    chosen.compute_type = type;
                    chosen.average = 1;
                    const Described described = describe(with_replicated(), preset, chosen);
                    Engine engine(described.spec, comm);
                    fill(engine);
                    const Training training{.micro_batches = 2};
                    step_on_device(engine, comm, described, training, 0, device);
                    const vescomm_fsdp_counters_t first = engine.counters();
                    step_on_device(engine, comm, described, training, 1, device);
                    const vescomm_fsdp_counters_t counters = engine.counters();
                    const vescomm_fsdp_report_t report =
                        described.spec.report(4, comm.rank(), training.micro_batches);
                    EXPECT_EQ(report.converted_bytes > 0,
                              (type == VESCOMM_BF16 || offload) && std::string(preset) != "ddp");
                    EXPECT_EQ(counters.allocated_bytes, report.peak_bytes);
                    EXPECT_EQ(report.device_bytes,
                              report.peak_bytes - (offload ? report.persistent_bytes : 0));
                    EXPECT_EQ(counters.gathers - first.gathers, report.gathers_per_step);
                    EXPECT_EQ(counters.gather_bytes - first.gather_bytes,
                              report.gather_bytes_per_step);
                    EXPECT_EQ(counters.reduce_bytes - first.reduce_bytes,
                              report.reduce_bytes_per_step);
                    EXPECT_EQ(counters.replica_bytes - first.replica_bytes,
                              report.replica_bytes_per_step);
                });
            }
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// More elements than are summed at once.
TEST(DeviceReplicated, MayBeLargeInPinnedMemory) {
    const std::vector<UnitModel> units = {
        {"large",
         {{.name = "w", .shape = {(std::int64_t{8} << 20) + 3}, .flags = VESCOMM_FSDP_REPLICATED},
          {.name = "v", .shape = {9}}}}};
    Options chosen = options(true);
    chosen.average = 1;
    expect_as_on_host(2, "zero3", chosen, units, {.steps = 1});
}

// Their sum has the same parts on all ranks, also beside a shard that one rank has alone, for whose
// scaled sums it has more scratch.
TEST(DeviceReplicated, AreSummedInEqualParts) {
    const std::int64_t elements = (std::int64_t{8} << 20) + 3;
    const std::vector<UnitModel> units = {
        {"large",
         {{.name = "w", .shape = {elements}, .flags = VESCOMM_FSDP_REPLICATED},
          {.name = "v", .shape = {2, elements / 2 + 100}, .block_rows = -1}}}};
    Options chosen = options(true);
    chosen.average = 1;
    expect_as_on_host(2, "zero3", chosen, units, {.steps = 1});
}

// The trainer has the values in the memory of its device, wherever masters are.
TEST(DeviceReplicated, AreAtDeviceAddresses) {
    for (const bool offload : {false, true})
        run_ranks(2, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described =
                describe(with_replicated(), "zero3", on_device(options(offload)));
            Engine engine(described.spec, comm);
            fill(engine);
            for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
                engine.unshard(unit, device.stream);
                for (const std::uint64_t id : described.ids[unit]) {
                    const vescomm_fsdp_view_t view = engine.parameter(id);
                    EXPECT_TRUE(view.elements == 0 || gpu_double::is_device_address(view.data));
                }
                engine.reshard(unit, device.stream);
            }
            EXPECT_EQ(engine.shard(5, VESCOMM_FSDP_MASTER).elements, 0);
        });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// Values that were set anew are seen, and a step that is begun again has the same result.
TEST(DeviceReplicated, TravelThroughCheckpointsAndResets) {
    for (const bool offload : {false, true}) {
        const TemporaryFolder folder;
        run_ranks(4, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described =
                describe(with_replicated(), "hsdp:2", on_device(options(offload)));
            Engine engine(described.spec, comm);
            fill(engine);
            step_on_device(engine, comm, described, {}, 0, device);
            engine.check_replicas();
            engine.save(folder.path("c")).wait(wait_seconds);
        });
        const std::vector<float> expected =
            train_on(1, odd_model(), "zero3", options(), {.steps = 2}).parameters;
        for (const bool replicated : {false, true})
            for (const bool on_devices : {false, true})
                run_ranks(3, [&](Communicator &comm) {
                    gpu_double::Device device(comm.rank());
                    const Described described =
                        describe(replicated ? with_replicated() : odd_model(), "zero3",
                                 on_devices ? on_device(options(offload)) : options());
                    Engine engine(described.spec, comm);
                    if (!on_devices) {
                        engine.load(folder.path("c"));
                        micro_batch(engine, described.ids, {}, 1, comm.rank(), 3, true);
                        engine.step();
                        EXPECT_EQ(read_all(engine, described.ids), expected);
                        return;
                    }
                    fill(engine);
                    step_on_device(engine, comm, described, {}, 5, device);
                    read_all_on_device(engine, described.ids, device);
                    engine.load(folder.path("c"));
                    engine.begin(VESCOMM_FSDP_LAST);
                    engine.pre_forward(0, device.stream);
                    comm.barrier();  // a rank that resets ends the step of the others
                    engine.reset();
                    step_on_device(engine, comm, described, {}, 1, device);
                    EXPECT_EQ(read_all_on_device(engine, described.ids, device), expected);
                    engine.check_replicas();
                });
    }
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// The update of masters, and of their copies, waits for readers on streams that the step does not
// know, and later readers wait for it.
TEST(DeviceReplicated, ChangeAfterTheUsesOnAllStreams) {
    for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16})
        for (const bool offload : {false, true}) {
            run_ranks(2, [&](Communicator &comm) {
                gpu_double::Device device(comm.rank());
                gpu_double::cuda::Stream other = nullptr;
                EXPECT_EQ(cudaStreamCreateWithFlags(&other, 1), 0);
                Options chosen = on_device(options(offload));
                chosen.compute_type = type;
                const Described described =
                    describe(tied_and_frozen(VESCOMM_FSDP_REPLICATED), "zero3", chosen);
                Engine engine(described.spec, comm);
                fill(engine);
                for (int step = 0; step < 3; ++step) {
                    engine.begin(VESCOMM_FSDP_LAST);
                    for (const std::uint64_t unit : {0, 1}) {
                        engine.pre_forward(unit, device.stream);
                        read_on_device(engine, described.ids[unit], device.stream);
                        engine.post_forward(unit, device.stream);
                    }
                    for (const std::uint64_t unit : {1, 0}) {
                        engine.pre_backward(unit, device.stream);
                        write_on_device(engine, {described.ids[unit][unit == 0 ? 1 : 0]}, step,
                                        comm.rank(), 2, false, device);
                        engine.post_backward(unit, device.stream);
                    }
                    engine.finish_backward(device.stream);
                    // The values before the step, which its update overwrites.
                    for (const std::uint64_t unit : {0, 1}) {
                        engine.unshard(unit, other);
                        read_on_device(engine, described.ids[unit], other);
                        engine.reshard(unit, other);
                    }
                    engine.step(vescomm_fsdp_step_init(), device.stream);
                }
                EXPECT_EQ(cudaStreamSynchronize(other), 0);
                EXPECT_EQ(cudaStreamDestroy(other), 0);
            });
            EXPECT_EQ(gpu_double::take_violations(), "");
        }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
