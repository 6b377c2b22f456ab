// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Masters in bf16 and f16 on device memory have the bits of host memory, with the same random bits.
#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

constexpr vescomm_fsdp_rounding_t nearest = VESCOMM_FSDP_ROUND_NEAREST;
constexpr vescomm_fsdp_rounding_t stochastic = VESCOMM_FSDP_ROUND_STOCHASTIC;
constexpr double wait_seconds = 60;
const Training training{.steps = 3, .micro_batches = 2, .max_norm = 30};

using Options = vescomm_fsdp_spec_options_t;

Options on_host(Options options) {
    options.memory = VESCOMM_FSDP_HOST;
    options.offload_to_host = 0;
    return options;
}

// By type of masters.
class DeviceNarrowMasters : public ::testing::TestWithParam<vescomm_type_t> {
protected:
    static vescomm_type_t type() { return GetParam(); }
    static Options narrow(vescomm_fsdp_rounding_t rounding = stochastic) {
        Options options = vescomm_fsdp_spec_options_init();
        options.compute_type = type();
        options.gradient_type = VESCOMM_F32;
        options.master_type = type();
        options.master_rounding = rounding;
        options.seed = 5;
        return options;
    }
};

void expect_as_on_host(int ranks, const std::string &preset, const Options &options) {
    SCOPED_TRACE(::testing::Message()
                 << ranks << " ranks, " << preset << ", rounding " << options.master_rounding
                 << ", offload " << options.offload_to_host << ", compute_type "
                 << options.compute_type << ", gather_type " << options.gather_type);
    const Outcome host = train_on(ranks, odd_model(), preset, on_host(options), training);
    const Outcome device = train_on_devices(ranks, odd_model(), preset, options, training);
    EXPECT_EQ(device.parameters, host.parameters);
    EXPECT_EQ(device.norms, host.norms);
}

TEST_P(DeviceNarrowMasters, HaveTheBitsOfTheHost) {
    for (const vescomm_fsdp_rounding_t rounding : {nearest, stochastic})
        for (const int offload : {0, 1}) {
            Options options = narrow(rounding);
            options.offload_to_host = offload;
            for (const int ranks : {1, 2, 3}) expect_as_on_host(ranks, "zero3", options);
        }
}

TEST_P(DeviceNarrowMasters, HaveTheBitsOfTheHostWithOtherPresets) {
    for (const int offload : {0, 1})
        for (const char *preset : {"ddp", "zero1", "zero2", "hsdp:2", "hpz:2"}) {
            Options options = narrow();
            options.offload_to_host = offload;
            expect_as_on_host(4, preset, options);
        }
}

TEST_P(DeviceNarrowMasters, HaveTheBitsOfTheHostWithOtherOptions) {
    Options options = narrow();
    options.compute_type = VESCOMM_F32;
    expect_as_on_host(3, "zero3", options);
    options = narrow();
    options.keep_gathered = options.keep_gradients = 1;
    expect_as_on_host(3, "zero3", options);
    for (const vescomm_type_t code : {VESCOMM_I8, VESCOMM_F8E4M3})
        for (const char *preset : {"zero3", "hpz:2"}) {
            options = narrow();
            options.gather_type = code;
            expect_as_on_host(4, preset, options);
        }
    for (const int offload : {0, 1}) {
        options = narrow();
        options.partner_copy = 1;
        options.offload_to_host = offload;
        expect_as_on_host(3, "zero3", options);
    }
}

TEST_P(DeviceNarrowMasters, DependOnTheSeedOnlyWithStochasticRounding) {
    for (const vescomm_fsdp_rounding_t rounding : {nearest, stochastic}) {
        Options other = narrow(rounding);
        other.seed = 6;
        const bool same =
            train_on_devices(2, odd_model(), "zero3", narrow(rounding), training).parameters ==
            train_on_devices(2, odd_model(), "zero3", other, training).parameters;
        EXPECT_EQ(same, rounding == nearest);
    }
}

// ---- memory ----

TEST_P(DeviceNarrowMasters, TakeTwoBytesAndAreAllocatedAsReported) {
    for (const int offload : {0, 1})
        for (const int partner_copy : {0, 1})
            run_ranks(3, [&](Communicator &comm) {
                gpu_double::Device device(comm.rank());
                Options options = on_device(narrow());
                options.offload_to_host = offload;
                options.partner_copy = partner_copy;
                const Described described = describe(odd_model(), "zero3", options);
                options.master_type = VESCOMM_F32;
                const auto wide =
                    describe(odd_model(), "zero3", options).spec.report(3, comm.rank(), 2);
                Engine engine(described.spec, comm);
                fill(engine);
                step_on_device(engine, comm, described, training, 0, device);
                const auto report = described.spec.report(3, comm.rank(), 2);
                EXPECT_EQ(2 * report.master_bytes, wide.master_bytes);
                EXPECT_EQ(report.widened_bytes, 0);
                EXPECT_EQ(engine.counters().allocated_bytes, report.peak_bytes);
                const std::uint64_t of_host =
                    report.partner_bytes + (offload != 0 ? report.persistent_bytes : 0);
                EXPECT_EQ(report.device_bytes, report.peak_bytes - of_host);
            });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// A kind that is not concurrent gets a whole run in f32 on the host, and none on the device.
TEST_P(DeviceNarrowMasters, AreWidenedOnlyInMemoryOfTheHost) {
    const std::vector<UnitModel> units = {{"large", {{.name = "w", .shape = {300, 100}}}}};
    vescomm_optimizer_kind_t kind = *vescomm_optimizer_get_adamw();
    kind.concurrent = 0;
    for (const int offload : {0, 1})
        for (const int partner_copy : {0, 1})
            run_ranks(2, [&](Communicator &comm) {
                gpu_double::Device device(comm.rank());
                Options options = on_device(narrow());
                options.offload_to_host = offload;
                options.partner_copy = partner_copy;
                Described described = describe(units, "zero3", options);
                const vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
                described.spec.add_group(all_ids(described), &kind, &settings);
                Engine engine(described.spec, comm);
                fill(engine);
                step_on_device(engine, comm, described, {}, 0, device);
                const auto report = described.spec.report(2, comm.rank());
                constexpr std::uint64_t copy = 15'000 * sizeof(float);
                EXPECT_EQ(report.widened_bytes,
                          static_cast<std::uint64_t>(offload + partner_copy) * copy);
                EXPECT_EQ(engine.counters().allocated_bytes, report.peak_bytes);
            });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST_P(DeviceNarrowMasters, HaveViewsInTheirType) {
    run_ranks(3, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "zero3", on_device(narrow()));
        Engine engine(described.spec, comm);
        fill(engine);
        for (std::uint64_t unit = 0; unit < described.ids.size(); ++unit) {
            vescomm_fsdp_view_t view = engine.shard(unit, VESCOMM_FSDP_MASTER);
            EXPECT_EQ(view.type, type());
            const auto bytes =
                device.read(static_cast<const std::uint8_t *>(view.data), bytes_of(view));
            view.data = const_cast<std::uint8_t *>(bytes.data());
            for (const vescomm_optimizer_piece_t &piece : engine.pieces(unit))
                for (std::int64_t i = 0; i < piece.elements; ++i) {
                    const float x = initial(piece.parameter, piece.first + i);
                    EXPECT_EQ(read(view, piece.offset + i),
                              type() == VESCOMM_F16 ? from_f16(to_f16(x)) : from_bf16(to_bf16(x)));
                }
        }
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// ---- values that enter and leave ----

// A trainer on either kind of memory.
class Trainer {
public:
    Trainer(Communicator &comm, const Options &options)
        : comm_(comm),
          device_(comm.rank()),
          on_device_(options.memory == VESCOMM_FSDP_DEVICE),
          described_(describe(odd_model(), "zero3", options)),
          engine_(described_.spec, comm) {}

    Engine &engine() { return engine_; }
    void step(int step) {
        if (on_device_) {
            step_on_device(engine_, comm_, described_, {}, step, device_);
            return;
        }
        micro_batch(engine_, described_.ids, {}, step, comm_.rank(), comm_.ranks(), true);
        engine_.step();
    }
    std::vector<float> read() {
        return on_device_ ? read_all_on_device(engine_, described_.ids, device_)
                          : read_all(engine_, described_.ids);
    }

private:
    Communicator &comm_;
    gpu_double::Device device_;
    bool on_device_;
    Described described_;
    Engine engine_;
};

TEST_P(DeviceNarrowMasters, GoOnFromASaveOfAnyKindOfMemory) {
    const std::vector<float> expected =
        train_on(1, odd_model(), "zero3", narrow(), {.steps = 4}).parameters;
    Options offloaded = on_device(narrow());
    offloaded.offload_to_host = 1;
    const Options kinds[] = {narrow(), on_device(narrow()), offloaded};
    for (const Options &saves : kinds) {
        const TemporaryFolder folder;
        run_ranks(3, [&](Communicator &comm) {
            Trainer trainer(comm, saves);
            fill(trainer.engine());
            for (const int step : {0, 1}) trainer.step(step);
            trainer.engine().save(folder.path("c")).wait(wait_seconds);
        });
        for (const Options &loads : kinds)
            run_ranks(2, [&](Communicator &comm) {
                Trainer trainer(comm, loads);
                trainer.engine().load(folder.path("c"));
                for (const int step : {2, 3}) trainer.step(step);
                EXPECT_EQ(trainer.read(), expected);
            });
    }
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST_P(DeviceNarrowMasters, AreLoadedFromF32) {
    const TemporaryFolder folder;
    Options wide = narrow();
    wide.master_type = VESCOMM_F32;
    wide.compute_type = VESCOMM_F32;
    run_ranks(2, [&](Communicator &comm) {
        Trainer trainer(comm, wide);
        fill(trainer.engine());
        trainer.step(0);
        trainer.engine().save(folder.path("c")).wait(wait_seconds);
    });
    std::vector<std::vector<float>> loaded(2);
    for (const bool device : {false, true})
        run_ranks(3, [&](Communicator &comm) {
            Trainer trainer(comm, device ? on_device(narrow()) : narrow());
            trainer.engine().load(folder.path("c"));
            trainer.step(1);
            const std::vector<float> seen = trainer.read();
            if (comm.rank() == 0) loaded[device ? 1 : 0] = seen;
        });
    EXPECT_EQ(loaded[1], loaded[0]);
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST_P(DeviceNarrowMasters, BeginAStepAgain) {
    const std::vector<float> expected =
        train_on(1, odd_model(), "zero3", narrow(), {.steps = 2}).parameters;
    for (const int offload : {0, 1})
        run_ranks(2, [&](Communicator &comm) {
            Options options = on_device(narrow());
            options.offload_to_host = offload;
            options.partner_copy = 1;
            Trainer trainer(comm, options);
            fill(trainer.engine());
            trainer.step(0);
            trainer.engine().check_replicas();
            comm.barrier();  // a rank that resets ends the step of the others
            trainer.engine().begin(VESCOMM_FSDP_LAST);
            trainer.engine().reset();
            trainer.step(1);
            trainer.engine().check_replicas();  // the partner copies have the bits of the kernels
            EXPECT_EQ(trainer.read(), expected);
        });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

INSTANTIATE_TEST_SUITE_P(Type, DeviceNarrowMasters, ::testing::Values(VESCOMM_BF16, VESCOMM_F16),
                         [](const auto &info) {
                             return info.param == VESCOMM_F16 ? "F16" : "Bf16";
                         });

}  // namespace
}  // namespace vescomm::fsdp::testing
