// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// An engine on device memory refuses options that it does not have at its creation, on all ranks,
// with a sentence that says what to do.
#include <cstdlib>

#include "fsdp/device/refused.h"

namespace vescomm::fsdp::testing {
namespace {

void expect_refused(const std::function<void(vescomm_fsdp_spec_options_t &)> &change,
                    const std::string &sentence) {
    vescomm_fsdp_spec_options_t options = on_device();
    change(options);
    expect_unsupported([&] { return describe(odd_model(), "zero3", options); }, sentence);
}

TEST(DeviceEngine, RefusesWhatItDoesNotHave) {
    using Options = vescomm_fsdp_spec_options_t;
    expect_refused([](Options &o) { o.offload_folder = "/tmp"; },
                   "offload_folder without offload_to_host is not supported on device memory; set "
                   "offload_to_host to 1");
}

TEST(DeviceEngine, RefusesReproducibleSums) {
    setenv("VESCOMM_REPRODUCIBLE", "yes", 1);
    expect_refused([](vescomm_fsdp_spec_options_t &) {}, "asks for reproducible reductions");
    unsetenv("VESCOMM_REPRODUCIBLE");
}

TEST(DeviceEngine, RefusesOptimizersWithoutADeviceStep) {
    expect_unsupported(
        [] {
            Described described = describe(odd_model(), "zero3", on_device());
            vescomm_optimizer_kind_t kind = *vescomm_optimizer_get_sgd();
            kind.name = "other";
            kind.step = [](void *, const void *, const vescomm_optimizer_run_t *) { return 0; };
            const vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
            described.spec.add_group({described.ids[0].data(), 1}, &kind, &settings);
            return described;
        },
        "optimizer \"other\" has no device_step and is not supported on device memory; use one of "
        "vescomm, give its kind a device_step, set offload_to_host to 1");
}

// A call on another device would allocate or launch there. Nothing changes, and other ranks wait.
TEST(DeviceEngine, RefusesAnotherCurrentDevice) {
    run_ranks(2, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "zero3", on_device());
        Engine engine(described.spec, comm);
        const auto called = [&](const auto &call) {
            if (comm.rank() == 1) {
                EXPECT_EQ(gpu_double::cudaSetDevice(0), 0);
                try {
                    call();
                    ADD_FAILURE() << "not refused";
                } catch (const Error &error) {
                    EXPECT_EQ(error.status(), VESCOMM_ERROR_INVALID_ARGUMENT) << error.what();
                    EXPECT_NE(std::string(error.what())
                                  .find("device 0 is current, and the engine is on device 1; call "
                                        "cudaSetDevice(1)"),
                              std::string::npos)
                        << error.what();
                }
                EXPECT_EQ(gpu_double::cudaSetDevice(1), 0);
            }
            call();
        };
        called([&] { fill(engine); });
        called([&] { engine.begin(VESCOMM_FSDP_EVAL); });
        called([&] { engine.reset(); });
        micro_batch_on_device(engine, described.ids, {}, 0, comm.rank(), 2, true, device);
        called([&] { engine.norm(); });
        called([&] { engine.scale(0.5); });
        called([&] { engine.step(vescomm_fsdp_step_init(), device.stream); });
        called([&] { engine.check_replicas(); });
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
