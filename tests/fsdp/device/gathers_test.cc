// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Gathers of an engine on device memory that do not simply move the masters: secondary copies
// (hpz:K, reshard_ranks), codes of 8 bits, and units with replicated parameters. Gradients depend
// on the gathered parameters, so that a value that differs from the engine on host memory changes
// all later ones.
#include <algorithm>

#include "fsdp/device/compared.h"
#include "fsdp/hpz.h"
#include "fsdp/replicated.h"

namespace vescomm::fsdp::testing {
namespace {

TEST(DeviceSecondaryCopies, HaveTheBitsOfTheHost) {
    expect_as_on_host(6, odd_model(), hpz(2), options_of(1));
    expect_as_on_host(6, odd_model(), hpz(3), options_of(3), {.steps = 2});
    expect_as_on_host(2, odd_model(), hpz(1), options_of());
    expect_as_on_host(3, odd_model(), hpz(3), options_of());
}

TEST(DeviceSecondaryCopies, HaveTheBitsOfTheHostInEveryOrderAndType) {
    for (const int order : {0, 1, 2})
        for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16}) {
            vescomm_fsdp_spec_options_t chosen = options_of(2, type);
            chosen.gradient_type = VESCOMM_F32;
            chosen.order = order;
            chosen.offload_to_host = order == 2 ? 1 : 0;
            expect_as_on_host(4, odd_model(), hpz(2), chosen, {.recompute = true});
        }
}

TEST(DeviceSecondaryCopies, AreWithinTheShardGroupsOfHsdp) {
    vescomm_fsdp_spec_options_t chosen = options_of();
    chosen.reshard_ranks = 2;
    expect_as_on_host(8, odd_model(), "hsdp:4", chosen, {.steps = 2});
}

// Only the first gather of a unit after a change of the masters is one of all ranks, which have
// another method here than a group of one rank.
TEST(DeviceSecondaryCopies, LetLaterGathersStayWithinTheGroup) {
    const std::vector<UnitModel> units = {{"a", {{.name = "w", .shape = {64}}}},
                                          {"b", {{.name = "w", .shape = {64}}}}};
    for (const int micro_batches : {1, 3}) {
        gpu_double::forget_calls();
        const std::uint64_t gathers =
            train_ranks(4, units, hpz(1), options_of(1),
                        {.steps = 1, .micro_batches = micro_batches}, true)
                .gathers;
        // Two units, before the step and after it, on each of 4 ranks.
        EXPECT_EQ(static_cast<std::uint64_t>(gpu_double::calls_of("ncclAllGather")),
                  4 * (gathers - 2 * 2));
        EXPECT_GT(gathers, 4u);
    }
}

TEST(DeviceSecondaryCopies, AreMadeAgainAfterValuesChange) {
    run_ranks(4, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "hpz:2", on_device(options_of()));
        Engine engine(described.spec, comm);
        fill(engine);
        const std::vector<float> first = read_all_on_device(engine, described.ids, device);
        EXPECT_EQ(read_all_on_device(engine, described.ids, device), first);
        engine.initialise([](std::uint64_t, std::int64_t, std::span<float> values, std::uint64_t) {
            std::ranges::fill(values, 3.0f);
        });
        for (const float value : read_all_on_device(engine, described.ids, device))
            EXPECT_EQ(value, 3);
        engine.begin(VESCOMM_FSDP_LAST);
        engine.pre_forward(0, device.stream);
        comm.barrier();  // a rank that resets ends the step of the others
        engine.reset();
        for (const float value : read_all_on_device(engine, described.ids, device))
            EXPECT_EQ(value, 3);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

vescomm_fsdp_spec_options_t in_codes(vescomm_type_t gather_type, int slots = 2, int block = 0,
                                     vescomm_type_t type = 0) {
    vescomm_fsdp_spec_options_t chosen = options_of(slots, type);
    chosen.gradient_type = VESCOMM_F32;
    chosen.gather_type = gather_type;
    chosen.gather_block = block;
    return chosen;
}

TEST(DeviceQuantisedGathers, HaveTheBitsOfTheHost) {
    for (const vescomm_type_t type : {VESCOMM_I8, VESCOMM_F8E4M3}) {
        expect_as_on_host(1, wide_model(), "zero3", in_codes(type, 1));
        expect_as_on_host(3, wide_model(VESCOMM_BF16), "zero3",
                          in_codes(type, 3, 100, VESCOMM_BF16));
        expect_as_on_host(2, odd_model(), "zero2", in_codes(type, 2, 24, VESCOMM_F16));
    }
    vescomm_fsdp_spec_options_t offloaded = in_codes(VESCOMM_I8);
    offloaded.offload_to_host = 1;
    expect_as_on_host(2, odd_model(), "zero3", offloaded, {.steps = 2, .recompute = true});
}

TEST(DeviceQuantisedGathers, HaveTheBitsOfTheHostFromSecondaryCopies) {
    expect_as_on_host(4, odd_model(), hpz(2), in_codes(VESCOMM_I8, 1, 0, VESCOMM_BF16));
    expect_as_on_host(4, wide_model(), hpz(1), in_codes(VESCOMM_F8E4M3, 3, 100));
}

TEST(DeviceGathersBesideReplicated, HaveTheBitsOfTheHost) {
    for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16})
        for (const int offload : {0, 1}) {
            vescomm_fsdp_spec_options_t chosen = options_of(2, type);
            chosen.gradient_type = VESCOMM_F32;
            chosen.offload_to_host = offload;
            expect_as_on_host(3, with_replicated(), "zero3", chosen, {.recompute = true});
            expect_as_on_host(4, all_replicated(), "hsdp:2", chosen);
            chosen.gather_type = VESCOMM_I8;
            expect_as_on_host(4, with_replicated(), hpz(2), chosen);
        }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
