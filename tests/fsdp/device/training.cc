// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {

vescomm_fsdp_spec_options_t on_device(vescomm_fsdp_spec_options_t options) {
    options.memory = VESCOMM_FSDP_DEVICE;
    return options;
}

std::size_t bytes_of(const vescomm_fsdp_view_t &view) {
    return static_cast<std::size_t>(view.elements) * vescomm_type_get_bytes(view.type);
}

vescomm_fsdp_view_t host_view(vescomm_fsdp_view_t view) {
    view.data = gpu_double::host_view(view.data);
    return view;
}

void read_on_device(Engine &engine, const std::vector<std::uint64_t> &ids,
                    gpu_double::cuda::Stream stream) {
    std::vector<gpu_double::Access> accesses;
    for (const std::uint64_t id : ids) {
        const vescomm_fsdp_view_t view = engine.parameter(id);
        if (view.elements > 0) accesses.push_back({view.data, bytes_of(view), false});
    }
    EXPECT_EQ(gpu_double::launch(stream, "forward", accesses, [] {}), 0);
}

void write_on_device(Engine &engine, const std::vector<std::uint64_t> &ids, int step, int part,
                     int parts, bool push, gpu_double::Device &device) {
    const auto term = [=](std::uint64_t id, std::int64_t i) {
        return static_cast<float>(gradient_term(total_gradient(id, i, step), part, parts));
    };
    for (const std::uint64_t id : ids) {
        if (push) {
            const std::int64_t count = engine.parameter(id).elements;
            std::vector<float> terms;
            for (std::int64_t i = 0; i < count; ++i) terms.push_back(term(id, i));
            if (terms.empty()) terms.push_back(0);
            engine.push_gradient(id, device.upload(terms), VESCOMM_F32, device.stream);
            continue;
        }
        const auto [view, mode] = engine.gradient(id);
        if (view.elements == 0) continue;
        const auto work = [view = view, mode = mode, id, term] {
            const vescomm_fsdp_view_t at = host_view(view);
            for (std::int64_t i = 0; i < at.elements; ++i)
                write(at, i, mode == VESCOMM_FSDP_ADD ? read(at, i) + term(id, i) : term(id, i));
        };
        EXPECT_EQ(gpu_double::launch(device.stream, "backward", {{view.data, bytes_of(view), true}},
                                     work),
                  0);
    }
}

void micro_batch_on_device(Engine &engine, const std::vector<std::vector<std::uint64_t>> &ids,
                           const Training &training, int step, int part, int parts, bool last,
                           gpu_double::Device &device) {
    engine.begin(last ? VESCOMM_FSDP_LAST : 0);
    for (std::size_t unit = 0; unit < ids.size(); ++unit) {
        engine.pre_forward(unit, device.stream);
        read_on_device(engine, ids[unit], device.stream);
        engine.post_forward(unit, device.stream);
    }
    for (std::size_t unit = ids.size(); unit-- > 0;) {
        engine.pre_backward(unit, device.stream);
        if (training.recompute) engine.pre_forward(unit, device.stream);
        read_on_device(engine, ids[unit], device.stream);
        write_on_device(engine, ids[unit], step, part, parts, training.push, device);
        if (training.recompute) engine.post_forward(unit, device.stream);
        engine.post_backward(unit, device.stream);
    }
    engine.finish_backward(device.stream);
}

double step_on_device(Engine &engine, Communicator &comm, const Described &described,
                      const Training &training, int step, gpu_double::Device &device) {
    for (int micro = 0; micro < training.micro_batches; ++micro)
        micro_batch_on_device(
            engine, described.ids, training, step, comm.rank() * training.micro_batches + micro,
            comm.ranks() * training.micro_batches, micro + 1 == training.micro_batches, device);
    vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
    arguments.max_norm = training.max_norm;
    return engine.step(arguments, device.stream).norm;
}

std::vector<float> read_all_on_device(Engine &engine,
                                      const std::vector<std::vector<std::uint64_t>> &ids,
                                      gpu_double::Device &device) {
    std::vector<float> seen;
    engine.begin(VESCOMM_FSDP_EVAL);
    for (std::size_t unit = 0; unit < ids.size(); ++unit) {
        engine.pre_forward(unit, device.stream);
        for (const std::uint64_t id : ids[unit]) {
            vescomm_fsdp_view_t view = engine.parameter(id);
            std::vector<std::uint8_t> bytes;
            if (view.elements > 0)
                bytes = device.read(static_cast<const std::uint8_t *>(view.data), bytes_of(view));
            view.data = bytes.data();
            for (std::int64_t i = 0; i < view.elements; ++i) seen.push_back(read(view, i));
        }
        engine.post_forward(unit, device.stream);
    }
    return seen;
}

Outcome train_on_device(Communicator &comm, const Described &described, const Training &training) {
    gpu_double::Device device(comm.rank());
    Outcome outcome;
    Engine engine(described.spec, comm);
    fill(engine);
    for (int step = 0; step < training.steps; ++step)
        outcome.norms.push_back(step_on_device(engine, comm, described, training, step, device));
    outcome.counters = engine.counters();
    outcome.parameters = read_all_on_device(engine, described.ids, device);
    return outcome;
}

Outcome train_on_devices(int ranks, const std::vector<UnitModel> &units, const std::string &preset,
                         vescomm_fsdp_spec_options_t options, const Training &training) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Communicator &comm) {
        outcomes[static_cast<std::size_t>(comm.rank())] =
            train_on_device(comm, describe(units, preset, on_device(options)), training);
    });
    for (const Outcome &outcome : outcomes) {
        EXPECT_EQ(outcome.parameters, outcomes[0].parameters);
        EXPECT_EQ(outcome.norms, outcomes[0].norms);
    }
    EXPECT_EQ(gpu_double::take_violations(), "");
    EXPECT_EQ(gpu_double::live_communicators(), 0);
    return outcomes[0];
}

}  // namespace vescomm::fsdp::testing
