// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Training with the engine on device memory, on the test double: the bits of the engine on host
// memory. Gradients are whole numbers, so that the order of NCCL's sums does not matter.
#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

vescomm_fsdp_spec_options_t options() {
    return vescomm_fsdp_spec_options_init();
}

void expect_as_on_host(int ranks, const std::vector<UnitModel> &units, const std::string &preset,
                       const vescomm_fsdp_spec_options_t &options, const Training &training) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, " + preset + ", micro-batches " +
                 std::to_string(training.micro_batches));
    const Outcome host = train_on(ranks, units, preset, options, training);
    const Outcome device = train_on_devices(ranks, units, preset, options, training);
    ASSERT_FALSE(host.parameters.empty());
    EXPECT_EQ(device.parameters, host.parameters);
    EXPECT_EQ(device.norms, host.norms);
}

TEST(DeviceEngine, HasTheBitsOfTheHostOnAnyNumberOfRanks) {
    for (const int ranks : {1, 2, 3, 5})
        expect_as_on_host(ranks, odd_model(), "zero3", options(), {});
}

TEST(DeviceEngine, HasTheBitsOfTheHostWithAnyPreset) {
    for (const char *preset : {"ddp", "zero1", "zero2", "hsdp:2"})
        for (const int micro_batches : {1, 3})
            expect_as_on_host(4, odd_model(), preset, options(),
                              {.micro_batches = micro_batches, .max_norm = 1});
}

TEST(DeviceEngine, HasTheBitsOfTheHostWithSeveralMicroBatches) {
    for (const bool push : {false, true})
        expect_as_on_host(3, odd_model(), "zero3", options(),
                          {.micro_batches = 3, .max_norm = 0.5, .push = push, .recompute = !push});
}

TEST(DeviceEngine, HasTheBitsOfTheHostWithAnyNumberOfSlots) {
    for (const int slots : {1, 3, 100}) {
        vescomm_fsdp_spec_options_t chosen = options();
        chosen.slots = chosen.gradient_slots = slots;
        chosen.order = slots % 3;
        expect_as_on_host(2, odd_model(), "zero3", chosen, {.micro_batches = 2});
    }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
