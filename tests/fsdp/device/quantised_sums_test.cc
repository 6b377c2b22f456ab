// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Sums of gradients that travel between devices in 8 bits: the bits of host memory.
#include <limits>

#include "fsdp/device/compared.h"
#include "fsdp/hpz.h"

namespace vescomm::fsdp::testing {
namespace {

vescomm_fsdp_spec_options_t in_codes(vescomm_type_t reduce_type, int slots = 2, int block = 0,
                                     vescomm_type_t gradient_type = VESCOMM_F32) {
    vescomm_fsdp_spec_options_t chosen = options_of(slots);
    chosen.gradient_type = gradient_type;
    chosen.reduce_type = reduce_type;
    chosen.gather_block = block;
    return chosen;
}

TEST(DeviceQuantisedSums, HaveTheBitsOfTheHost) {
    for (const vescomm_type_t type : {VESCOMM_I8, VESCOMM_F8E4M3}) {
        expect_as_on_host(1, wide_model(), "zero3", in_codes(type, 1));
        expect_as_on_host(2, odd_model(), "zero2", in_codes(type, 2, 24));
        expect_as_on_host(3, wide_model(), "zero3", in_codes(type, 3, 100));
        expect_as_on_host(5, odd_model(), "zero3", in_codes(type, 1, 7),
                          {.steps = 2, .micro_batches = 3, .recompute = true});
    }
}

// All gradients of this model travel as codes: NCCL adds none of them.
std::vector<UnitModel> plain_model() {
    return {{"a", {{.name = "w", .shape = {90, 8}}}},
            {"b", {{.name = "w", .shape = {90, 4}}, {.name = "empty", .shape = {0, 2}}}}};
}

TEST(DeviceQuantisedSums, HaveTheBitsOfTheHostInEveryType) {
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16})
        for (const int ranks : {2, 3}) {
            vescomm_fsdp_spec_options_t chosen = in_codes(VESCOMM_I8, 2, 16, type);
            chosen.average = 1;
            expect_as_on_host(ranks, plain_model(), "zero3", chosen);
        }
}

TEST(DeviceQuantisedSums, HaveTheBitsOfTheHostWithOtherOptions) {
    vescomm_fsdp_spec_options_t averaged = in_codes(VESCOMM_I8);
    averaged.average = 1;
    expect_as_on_host(3, odd_model(), "zero3", averaged);
    // Two replicas: their order does not change a sum.
    expect_as_on_host(6, odd_model(), "hsdp:3", averaged, {.steps = 2});
    vescomm_fsdp_spec_options_t offloaded = in_codes(VESCOMM_F8E4M3);
    offloaded.offload_to_host = 1;
    expect_as_on_host(2, odd_model(), "zero3", offloaded, {.steps = 2});
    vescomm_fsdp_spec_options_t both = in_codes(VESCOMM_I8, 1);
    both.gather_type = VESCOMM_I8;
    expect_as_on_host(4, wide_model(), "hpz:2", both, {.steps = 2});
    vescomm_fsdp_spec_options_t kept = in_codes(VESCOMM_I8);
    kept.keep_gradients = 1;
    expect_as_on_host(3, odd_model(), "zero3", kept, {.steps = 2});
    vescomm_fsdp_spec_options_t copied = in_codes(VESCOMM_I8);
    copied.partner_copy = 1;
    expect_as_on_host(4, odd_model(), "hsdp:2", copied, {.steps = 2});
}

TEST(DeviceQuantisedSums, TravelInOneExchangeForEachUnit) {
    const auto sends_with = [](vescomm_type_t reduce_type) {
        gpu_double::forget_calls();
        train_ranks(3, plain_model(), "zero3", in_codes(reduce_type, 2, 16),
                    {.steps = 1, .micro_batches = 1}, true);
        const int reductions =
            gpu_double::calls_of("ncclReduceScatter") + gpu_double::calls_of("ncclReduce");
        EXPECT_EQ(reductions > 0, reduce_type == 0);
        return gpu_double::calls_of("ncclSend");
    };
    // Two units, and from each rank to two others. Gathers may be sends, too.
    EXPECT_EQ(sends_with(VESCOMM_I8) - sends_with(0), 2 * 3 * 2);
}

TEST(DeviceQuantisedSums, SkipAStepThatIsNotFinite) {
    run_ranks(3, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), "zero3", on_device(in_codes(VESCOMM_I8)));
        Engine engine(described.spec, comm);
        fill(engine);
        const std::vector<float> before = read_all_on_device(engine, described.ids, device);
        engine.begin(VESCOMM_FSDP_LAST);
        for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
            engine.pre_forward(unit, device.stream);
            engine.post_forward(unit, device.stream);
        }
        for (std::size_t unit = described.ids.size(); unit-- > 0;) {
            engine.pre_backward(unit, device.stream);
            for (const std::uint64_t id : described.ids[unit]) {
                const std::int64_t count = engine.parameter(id).elements;
                std::vector<float> values(
                    static_cast<std::size_t>(std::max<std::int64_t>(count, 1)), 1.0f);
                if (unit == 2 && comm.rank() == 1)
                    values.back() = std::numeric_limits<float>::infinity();
                engine.push_gradient(id, device.upload(values), VESCOMM_F32, device.stream);
            }
            engine.post_backward(unit, device.stream);
        }
        engine.finish_backward(device.stream);
        vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
        arguments.max_norm = 1;
        EXPECT_EQ(engine.step(arguments, device.stream).skipped, 1);
        EXPECT_EQ(read_all_on_device(engine, described.ids, device), before);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
