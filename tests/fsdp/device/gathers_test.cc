// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Gathers of an engine on device memory that do not simply move the masters: secondary copies
// (hpz:K, reshard_ranks) and codes of 8 bits. Gradients depend on the gathered parameters, so that
// a value that differs from the engine on host memory changes all later ones.
#include <algorithm>

#include "fsdp/device/training.h"
#include "fsdp/hpz.h"

namespace vescomm::fsdp::testing {
namespace {

// A whole number that depends on a parameter, so that sums are exact in any order.
float gradient_of(float parameter, std::int64_t i, int rank, int step) {
    return std::floor(parameter * 64) + static_cast<float>((i * 7 + rank * 13 + step * 5) % 31);
}

struct Steps {
    int steps = 3;
    int micro_batches = 2;
    bool recompute = false;
};

struct Result {
    std::vector<std::vector<float>> parameters;  // after each step
    std::uint64_t gathers = 0, gather_bytes = 0, group_gather_bytes = 0;
    bool operator==(const Result &) const = default;
};

void write_gradients(Engine &engine, const std::vector<std::uint64_t> &ids, int rank, int step,
                     gpu_double::Device *device) {
    for (const std::uint64_t id : ids) {
        const vescomm_fsdp_view_t parameter = engine.parameter(id);
        const auto [view, mode] = engine.gradient(id);
        if (view.elements == 0) continue;
        const auto work = [=, view = view, mode = mode](bool on_device) {
            const vescomm_fsdp_view_t from = on_device ? host_view(parameter) : parameter;
            const vescomm_fsdp_view_t to = on_device ? host_view(view) : view;
            for (std::int64_t i = 0; i < to.elements; ++i) {
                const float term = gradient_of(read(from, i), i, rank, step);
                write(to, i, mode == VESCOMM_FSDP_ADD ? read(to, i) + term : term);
            }
        };
        if (device == nullptr) {
            work(false);
            continue;
        }
        EXPECT_EQ(gpu_double::launch(device->stream, "backward",
                                     {{parameter.data, bytes_of(parameter), false},
                                      {view.data, bytes_of(view), true}},
                                     [work] { work(true); }),
                  0);
    }
}

// `device`: nullptr for host memory.
Result train(Communicator &comm, const Described &described, const Steps &steps,
             gpu_double::Device *device) {
    void *stream = device == nullptr ? nullptr : device->stream;
    Result result;
    Engine engine(described.spec, comm);
    fill(engine);
    const auto units = described.ids.size();
    for (int step = 0; step < steps.steps; ++step) {
        for (int micro = 0; micro < steps.micro_batches; ++micro) {
            engine.begin(micro + 1 == steps.micro_batches ? VESCOMM_FSDP_LAST : 0);
            for (std::size_t unit = 0; unit < units; ++unit) {
                engine.pre_forward(unit, stream);
                engine.post_forward(unit, stream);
            }
            for (std::size_t unit = units; unit-- > 0;) {
                engine.pre_backward(unit, stream);
                if (steps.recompute) engine.pre_forward(unit, stream);
                write_gradients(engine, described.ids[unit], comm.rank(), step + micro, device);
                if (steps.recompute) engine.post_forward(unit, stream);
                engine.post_backward(unit, stream);
            }
            engine.finish_backward(stream);
        }
        engine.step(vescomm_fsdp_step_init(), stream);
        result.parameters.push_back(device == nullptr
                                        ? read_all(engine, described.ids)
                                        : read_all_on_device(engine, described.ids, *device));
    }
    const vescomm_fsdp_counters_t counters = engine.counters();
    result.gathers = counters.gathers;
    result.gather_bytes = counters.gather_bytes;
    result.group_gather_bytes = counters.group_gather_bytes;
    return result;
}

Result train_ranks(int ranks, const std::vector<UnitModel> &units, const std::string &preset,
                   vescomm_fsdp_spec_options_t options, const Steps &steps, bool on_devices) {
    std::vector<Result> results(static_cast<std::size_t>(ranks));
    if (!on_devices) options.offload_to_host = 0;
    run_ranks(ranks, [&](Communicator &comm) {
        Result &own = results[static_cast<std::size_t>(comm.rank())];
        if (!on_devices) {
            own = train(comm, describe(units, preset, options), steps, nullptr);
            return;
        }
        gpu_double::Device device(comm.rank());
        own = train(comm, describe(units, preset, on_device(options)), steps, &device);
    });
    for (const Result &result : results) EXPECT_EQ(result.parameters, results[0].parameters);
    EXPECT_EQ(gpu_double::take_violations(), "");
    EXPECT_EQ(gpu_double::live_communicators(), 0);
    return results[0];
}

void expect_as_on_host(int ranks, const std::vector<UnitModel> &units, const std::string &preset,
                       const vescomm_fsdp_spec_options_t &options, const Steps &steps = {}) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << preset << ", " << options.slots
                                      << " slots, compute_type " << options.compute_type);
    const Result host = train_ranks(ranks, units, preset, options, steps, false);
    ASSERT_FALSE(host.parameters.front().empty());
    EXPECT_EQ(train_ranks(ranks, units, preset, options, steps, true), host);
}

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

// Blocks that are parts of a row, several rows and parts of a batch, beside parameters that are not
// quantised.
std::vector<UnitModel> wide_model(vescomm_type_t type = VESCOMM_F32) {
    return {{"first",
             {{.name = "long rows", .shape = {9, 301}},
              {.name = "whole", .shape = {40, 100}, .block_rows = -1},
              {.name = "norm", .shape = {77}, .gather_type = type}}},
            {"second", {{.name = "experts", .shape = {7, 5, 11}, .batch_dimensions = 1}}},
            {"third", {{.name = "empty", .shape = {0, 8}}}}};
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

}  // namespace
}  // namespace vescomm::fsdp::testing
