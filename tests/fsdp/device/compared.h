// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A training on the test double whose gradients depend on the gathered parameters, beside the same
// one on host memory: a value that differs changes all later ones.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {

// A whole number that depends on a parameter, so that sums are exact in any order.
inline float gradient_of(float parameter, std::int64_t i, int rank, int step) {
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

inline void write_gradients(Engine &engine, const std::vector<std::uint64_t> &ids, int rank,
                            int step, gpu_double::Device *device) {
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
inline Result train(Communicator &comm, const Described &described, const Steps &steps,
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

inline Result train_ranks(int ranks, const std::vector<UnitModel> &units, const std::string &preset,
                          vescomm_fsdp_spec_options_t options, const Steps &steps,
                          bool on_devices) {
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

inline void expect_as_on_host(int ranks, const std::vector<UnitModel> &units,
                              const std::string &preset, const vescomm_fsdp_spec_options_t &options,
                              const Steps &steps = {}) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << preset << ", " << options.slots
                                      << " slots, compute_type " << options.compute_type);
    const Result host = train_ranks(ranks, units, preset, options, steps, false);
    ASSERT_FALSE(host.parameters.front().empty());
    EXPECT_EQ(train_ranks(ranks, units, preset, options, steps, true), host);
}

// Blocks that are parts of a row, several rows and parts of a batch, beside parameters that are not
// quantised.
inline std::vector<UnitModel> wide_model(vescomm_type_t type = VESCOMM_F32) {
    return {{"first",
             {{.name = "long rows", .shape = {9, 301}},
              {.name = "whole", .shape = {40, 100}, .block_rows = -1},
              {.name = "norm", .shape = {77}, .gather_type = type}}},
            {"second", {{.name = "experts", .shape = {7, 5, 11}, .batch_dimensions = 1}}},
            {"third", {{.name = "empty", .shape = {0, 8}}}}};
}

}  // namespace vescomm::fsdp::testing
