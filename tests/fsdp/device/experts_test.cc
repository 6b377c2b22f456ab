// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Units of experts on device memory: the bits of host memory.
#include "fsdp/experts.h"

#include <utility>

#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

struct Outcomes {
    std::vector<double> norms;
    std::vector<std::vector<std::vector<float>>> parameters;  // by rank and id
    bool operator==(const Outcomes &) const = default;
};

void write_gradients_on_device(Engine &engine, const MixtureModel &model, const Communicator &comm,
                               std::uint64_t unit, int step, int micro, int micro_batches,
                               gpu_double::Device &device) {
    for (const std::uint64_t id : model.ids[unit]) {
        if (model.frozen[id]) continue;
        const int divided = model.experts[id] ? model.expert_ranks : 1;
        const int part = comm.rank() / divided * micro_batches + micro;
        const int parts = comm.ranks() / divided * micro_batches;
        const auto [view, mode] = engine.gradient(id);
        if (view.elements == 0) continue;
        const std::int64_t first = first_element(model, comm.rank(), id, view);
        const auto work = [view = view, mode = mode, id, first, part, parts, step] {
            const vescomm_fsdp_view_t at = host_view(view);
            for (std::int64_t i = 0; i < at.elements; ++i) {
                const auto term = static_cast<float>(
                    gradient_term(total_gradient(id, first + i, step), part, parts));
                write(at, i, mode == VESCOMM_FSDP_ADD ? read(at, i) + term : term);
            }
        };
        EXPECT_EQ(gpu_double::launch(device.stream, "backward", {{view.data, bytes_of(view), true}},
                                     work),
                  0);
    }
}

double take_step_on_device(Engine &engine, const MixtureModel &model, const Communicator &comm,
                           int step, int micro_batches, gpu_double::Device &device) {
    for (int micro = 0; micro < micro_batches; ++micro) {
        engine.begin(micro + 1 == micro_batches ? VESCOMM_FSDP_LAST : 0);
        for (std::uint64_t unit = 0; unit < model.ids.size(); ++unit) {
            engine.pre_forward(unit, device.stream);
            engine.post_forward(unit, device.stream);
        }
        for (std::uint64_t unit = model.ids.size(); unit-- > 0;) {
            engine.pre_backward(unit, device.stream);
            write_gradients_on_device(engine, model, comm, unit, step, micro, micro_batches,
                                      device);
            engine.post_backward(unit, device.stream);
        }
        engine.finish_backward(device.stream);
    }
    vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
    arguments.max_norm = 30;
    return engine.step(arguments, device.stream).norm;
}

std::vector<std::vector<float>> read_by_id(Engine &engine, const MixtureModel &model,
                                           gpu_double::Device &device) {
    std::vector<std::vector<float>> seen;
    std::vector<float> all = read_all_on_device(engine, model.ids, device);
    auto next = all.begin();
    for (const std::vector<std::uint64_t> &unit : model.ids)
        for (const std::uint64_t id : unit) {
            seen.resize(std::max<std::size_t>(seen.size(), id + 1));
            engine.unshard(static_cast<std::uint64_t>(&unit - model.ids.data()));
            const std::int64_t count = engine.parameter(id).elements;
            engine.reshard(static_cast<std::uint64_t>(&unit - model.ids.data()));
            seen[id].assign(next, next + count);
            next += count;
        }
    return seen;
}

Outcomes train(int ranks, const std::string &preset, const vescomm_fsdp_spec_options_t &options,
               int micro_batches, std::uint32_t flags) {
    constexpr int steps = 3;
    Outcomes outcomes;
    outcomes.parameters.resize(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const MixtureModel model = mixture(preset, options, flags);
        Engine engine(model.spec, comm);
        fill(engine);
        std::vector<double> norms;
        auto &parameters = outcomes.parameters[static_cast<std::size_t>(comm.rank())];
        if (options.memory == VESCOMM_FSDP_DEVICE) {
            for (int step = 0; step < steps; ++step)
                norms.push_back(
                    take_step_on_device(engine, model, comm, step, micro_batches, device));
            parameters = read_by_id(engine, model, device);
        } else {
            for (int step = 0; step < steps; ++step)
                norms.push_back(take_step(engine, model, comm, step, micro_batches));
            parameters = read_views(engine, model);
        }
        if (comm.rank() == 0) outcomes.norms = norms;
    });
    return outcomes;
}

void expect_as_on_host(int ranks, const std::string &preset, vescomm_fsdp_spec_options_t options,
                       int micro_batches = 1, std::uint32_t flags = 0) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << preset << ", expert_ranks "
                                      << options.expert_ranks << ", slots " << options.slots);
    const int offload = std::exchange(options.offload_to_host, 0);
    const Outcomes host = train(ranks, preset, options, micro_batches, flags);
    options.memory = VESCOMM_FSDP_DEVICE;
    options.offload_to_host = offload;
    EXPECT_EQ(train(ranks, preset, options, micro_batches, flags), host);
    EXPECT_EQ(gpu_double::take_violations(), "");
    EXPECT_EQ(gpu_double::live_communicators(), 0);
}

TEST(DeviceExperts, HaveTheBitsOfTheHost) {
    expect_as_on_host(2, "zero3", mixture_options(2));
    expect_as_on_host(4, "zero3", mixture_options(2), 2);
    expect_as_on_host(3, "zero2", mixture_options(3));
    expect_as_on_host(6, "hsdp:3", mixture_options(3));
}

TEST(DeviceExperts, MayBeBesideReplicatedParameters) {
    for (const int offload : {0, 1}) {
        vescomm_fsdp_spec_options_t options = mixture_options(2);
        options.average = 1;
        options.offload_to_host = offload;
        expect_as_on_host(4, "zero3", options, 2, VESCOMM_FSDP_REPLICATED);
        expect_as_on_host(8, "hsdp:4", options, 1, VESCOMM_FSDP_REPLICATED);
    }
}

TEST(DeviceExperts, AreGatheredInEightBits) {
    vescomm_fsdp_spec_options_t options = mixture_options(2);
    options.gather_type = VESCOMM_I8;
    expect_as_on_host(4, "zero3", options);
}

TEST(DeviceExperts, AreSummedInEightBits) {
    for (const int average : {0, 1}) {
        vescomm_fsdp_spec_options_t options = mixture_options(2);
        options.reduce_type = VESCOMM_I8;
        options.average = average;
        options.expert_divisor = average * 3;
        expect_as_on_host(4, "zero3", options, 2);
        expect_as_on_host(2, "zero3", options);
    }
}

TEST(DeviceExperts, HaveNarrowMasters) {
    for (const int offload : {0, 1}) {
        vescomm_fsdp_spec_options_t options = mixture_options(2);
        options.compute_type = options.master_type = VESCOMM_BF16;
        options.gradient_type = VESCOMM_F32;
        options.seed = 5;
        options.offload_to_host = offload;
        expect_as_on_host(4, "zero3", options);
    }
}

TEST(DeviceExperts, AreAveragedAsOnTheHost) {
    for (const int divisor : {0, 3}) {
        vescomm_fsdp_spec_options_t options = mixture_options(2);
        options.average = 1;
        options.expert_divisor = divisor;
        options.slots = options.gradient_slots = 20;
        expect_as_on_host(4, "hsdp:2", options, 2);
    }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
