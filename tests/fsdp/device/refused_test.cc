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

}  // namespace
}  // namespace vescomm::fsdp::testing
