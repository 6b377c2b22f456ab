// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Copies of a partner, and vescomm_fsdp_recover() of an engine on device memory. A rank that dies
// is a thread whose engine has failed and that makes no call any more.
#include <algorithm>
#include <barrier>
#include <optional>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/device/training.h"
#include "fsdp/replicated.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

vescomm_fsdp_spec_options_t with_copies(bool offload = false) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.partner_copy = 1;
    options.offload_to_host = offload ? 1 : 0;
    return options;
}

// The parameters after training on one rank, on host memory.
std::vector<float> alone(int steps, vescomm_fsdp_spec_options_t options) {
    options.partner_copy = options.offload_to_host = 0;
    return train_on(1, odd_model(), "zero3", options, {.steps = steps}).parameters;
}

struct Death {
    int ranks = 3;
    std::vector<int> victims = {1};
    std::string preset = "zero3";
    std::string preset_of_survivors = {};  // empty: the same
    std::string folder = {};  // of checkpoints
    vescomm_fsdp_spec_options_t options = with_copies();
    std::vector<UnitModel> units = odd_model();
};

// Trains one step, lets the victims die in the next one, and calls survive(engine, survivors,
// device) on the others, with their communicator.
void die(const Death &death,
         const std::function<void(Engine &, Communicator &, gpu_double::Device &)> &survive) {
    SCOPED_TRACE(::testing::Message() << death.preset << " on " << death.ranks << " ranks, rank "
                                      << death.victims.front() << " dies");
    std::barrier<> all(death.ranks);
    const auto is_victim = [&](int rank) { return std::ranges::count(death.victims, rank) > 0; };
    run_ranks(death.ranks, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(death.units, death.preset, on_device(death.options));
        std::optional<Communicator> survivors;
        Engine engine(described.spec, comm);
        fill(engine);
        step_on_device(engine, comm, described, {}, 0, device);
        if (!death.folder.empty()) engine.save(death.folder).wait(60);
        all.arrive_and_wait();
        if (is_victim(comm.rank())) {
            gpu_double::kill_device(comm.rank());
            vescomm_comm_abort(engine.comm(), "the process of the victim has ended");
        } else {
            EXPECT_THROW(step_on_device(engine, comm, described, {}, 1, device), Error);
            vescomm_comm_t *made = nullptr;
            const std::vector<std::int32_t> failed(death.victims.begin(), death.victims.end());
            check(vescomm_comm_shrink(comm.get(), failed.data(), failed.size(), &made));
            survivors.emplace(made);
            survive(engine, *survivors, device);
        }
        all.arrive_and_wait();  // the dead rank frees nothing before
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
    EXPECT_EQ(gpu_double::live_communicators(), 0);
}

// Expects that the survivors go on without losing a step.
void expect_recovery(const Death &death) {
    const std::vector<float> expected = alone(3, death.options);
    die(death, [&](Engine &engine, Communicator &survivors, gpu_double::Device &device) {
        const std::string preset =
            death.preset_of_survivors.empty() ? death.preset : death.preset_of_survivors;
        const Described described = describe(death.units, preset, on_device(death.options));
        vescomm_fsdp_recovery_t recovery = vescomm_fsdp_recovery_init();
        recovery.spec = described.spec.get();
        if (!death.folder.empty()) recovery.folder = death.folder.c_str();
        recovery = engine.recover(survivors, recovery);
        EXPECT_EQ(recovery.steps, 1);
        EXPECT_EQ(recovery.lost_steps, 0);
        EXPECT_EQ(recovery.from_checkpoint, death.folder.empty() ? 0 : 1);
        EXPECT_EQ(engine.counters().steps, 1);
        for (const int step : {1, 2})
            step_on_device(engine, survivors, described, {}, step, device);
        EXPECT_EQ(read_all_on_device(engine, described.ids, device), expected);
    });
}

TEST(DevicePartnerCopy, DoesNotChangeTheTraining) {
    const Training training{.steps = 3, .micro_batches = 2, .max_norm = 30};
    const Outcome host =
        train_on(1, odd_model(), "zero3", vescomm_fsdp_spec_options_init(), training);
    for (const bool offload : {false, true})
        for (const char *preset : {"zero3", "zero1"}) {
            const Outcome device =
                train_on_devices(3, odd_model(), preset, with_copies(offload), training);
            EXPECT_EQ(device.parameters, host.parameters) << preset;
            EXPECT_EQ(device.norms, host.norms) << preset;
        }
}

TEST(DeviceRecovery, TakesTheShardOfAnyRankFromItsCopy) {
    expect_recovery({.ranks = 2, .victims = {0}});
    for (const int victim : {0, 2}) expect_recovery({.victims = {victim}});
}

TEST(DeviceRecovery, WorksWithOffloadAndWithOtherPresets) {
    expect_recovery({.options = with_copies(true)});
    expect_recovery({.ranks = 4, .preset = "hpz:2", .preset_of_survivors = "zero3"});
    // Replicas are copies.
    vescomm_fsdp_spec_options_t without_copies = with_copies();
    without_copies.partner_copy = 0;
    expect_recovery({.ranks = 3, .victims = {0, 2}, .preset = "ddp", .options = without_copies});
}

// Host and kernels round with the same random bits.
TEST(DeviceRecovery, KeepsNarrowMasters) {
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16})
        for (const bool offload : {false, true}) {
            vescomm_fsdp_spec_options_t options = with_copies(offload);
            options.compute_type = options.master_type = type;
            options.gradient_type = VESCOMM_F32;
            expect_recovery({.options = options});
        }
}

TEST(DeviceRecovery, KeepsReplicatedParameters) {
    for (const bool offload : {false, true})
        expect_recovery({.options = with_copies(offload), .units = with_replicated()});
    // One rank is left, which shards nothing.
    expect_recovery({.ranks = 2, .units = with_replicated()});
    vescomm_fsdp_spec_options_t without_copies = with_copies();
    without_copies.partner_copy = 0;
    expect_recovery({.ranks = 4,
                     .preset = "hsdp:2",
                     .preset_of_survivors = "zero3",
                     .options = without_copies,
                     .units = with_replicated()});
}

TEST(DeviceRecovery, LoadsTheCheckpointWithoutCopies) {
    const TemporaryFolder folder;
    vescomm_fsdp_spec_options_t without_copies = with_copies();
    without_copies.partner_copy = 0;
    expect_recovery({.folder = folder.path("c"), .options = without_copies});
}

TEST(DeviceRecovery, NamesTheShardThatIsMissing) {
    vescomm_fsdp_spec_options_t without_copies = with_copies();
    without_copies.partner_copy = 0;
    die({.options = without_copies},
        [&](Engine &engine, Communicator &survivors, gpu_double::Device &) {
            try {
                engine.recover(survivors);
                ADD_FAILURE() << "recovered without the shard of rank 1";
            } catch (const Error &error) {
                EXPECT_EQ(error.status(), VESCOMM_ERROR_PEER_FAILED) << error.what();
                EXPECT_NE(std::string(error.what()).find("no survivor has the shard of rank 1"),
                          std::string::npos)
                    << error.what();
            }
        });
}

// Settings of groups that change between steps apply to the copies too, also after a reset.
TEST(DevicePartnerCopy, FollowsResetAndSettings) {
    const auto train = [](Communicator &comm, const Described &described,
                          const std::function<void(Engine &, int step)> &take) {
        Engine engine(described.spec, comm);
        fill(engine);
        for (int step = 0; step < 2; ++step) {
            if (step == 1) {
                check(vescomm_barrier(comm.get()));
                engine.reset();
                vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
                settings.learning_rate = 0.5;
                engine.set_group(0, &settings);
            }
            take(engine, step);
        }
        return engine;
    };
    std::vector<float> expected;
    run_ranks(1, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine = train(comm, described, [&](Engine &of, int step) {
            micro_batch(of, described.ids, {}, step, 0, 1, true);
            of.step();
        });
        micro_batch(engine, described.ids, {}, 2, 0, 1, true);
        engine.step();
        expected = read_all(engine, described.ids);
    });
    std::barrier<> all(3);
    run_ranks(3, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "zero3", on_device(with_copies()));
        std::optional<Communicator> survivors;
        Engine engine = train(comm, described, [&](Engine &of, int step) {
            step_on_device(of, comm, described, {}, step, device);
        });
        all.arrive_and_wait();
        if (comm.rank() == 1) {
            gpu_double::kill_device(1);
            vescomm_comm_abort(engine.comm(), "the process of the victim has ended");
        } else {
            EXPECT_THROW(step_on_device(engine, comm, described, {}, 2, device), Error);
            const std::int32_t failed = 1;
            vescomm_comm_t *made = nullptr;
            check(vescomm_comm_shrink(comm.get(), &failed, 1, &made));
            survivors.emplace(made);
            engine.recover(*survivors);
            step_on_device(engine, *survivors, described, {}, 2, device);
            EXPECT_EQ(read_all_on_device(engine, described.ids, device), expected);
        }
        all.arrive_and_wait();
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
