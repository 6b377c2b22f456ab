// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/training.h"

#include <cmath>
#include <cstring>
#include <exception>
#include <sstream>
#include <thread>

#include "support/free_port.h"

namespace vescomm::fsdp::testing {

void run_ranks(int ranks, const std::function<void(Communicator &)> &body,
               const std::vector<int> &node_of, double timeout_seconds) {
    const std::string address = internal::testing_support::free_address();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                vescomm_comm_options_t options = vescomm_comm_options_init();
                options.timeout_seconds = timeout_seconds;
                std::string node = "node";
                if (!node_of.empty()) node += std::to_string(node_of[rank]);
                options.node = node.c_str();
                Communicator comm(rank, ranks, address, "a secret of this test", &options);
                body(comm);
            } catch (const std::exception &error) {
                ADD_FAILURE() << "rank " << rank << " of " << ranks << ": " << error.what();
            }
        });
    for (std::thread &thread : threads) thread.join();
}

std::vector<UnitModel> odd_model() {
    std::vector<UnitModel> units;
    units.push_back(
        {"embedding",
         {{.name = "token", .shape = {37, 12}}, {.name = "position", .shape = {5, 12}}}});
    for (int i = 0; i < 4; ++i)
        units.push_back(
            {"block." + std::to_string(i),
             {{.name = "up", .shape = {64, 12}, .block_rows = 32},
              {.name = "bias", .shape = {64}},
              {.name = "owned", .shape = {7, 9}, .block_rows = -1},
              {.name = "scale", .shape = {}},
              {.name = "experts", .shape = {3, 5, 4}, .batch_dimensions = 1, .block_elements = 6},
              {.name = "nothing", .shape = {0, 3}}}});
    units.push_back({"head", {{.name = "out", .shape = {19, 12}, .block_rows = 4}}});
    return units;
}

std::int64_t elements(const ParameterSpec &parameter) {
    std::int64_t product = 1;
    for (const std::int64_t extent : parameter.shape) product *= extent;
    return product;
}

void use_mesh(Spec &spec, const std::string &mesh) {
    if (mesh.find(' ') == std::string::npos) return spec.preset(mesh);
    constexpr vescomm_fsdp_placement_t shard = VESCOMM_FSDP_SHARD;
    constexpr vescomm_fsdp_placement_t replicate = VESCOMM_FSDP_REPLICATE;
    constexpr vescomm_fsdp_placement_t partial = VESCOMM_FSDP_PARTIAL;
    std::istringstream words(mesh);
    std::string name = "axis ";
    for (std::string axis; words >> axis; name += "i") {
        const char role = axis[0];
        const int size = std::stoi(axis.substr(2));
        if (role == 'r') spec.add_axis(name, size, replicate, replicate, replicate);
        if (role == 'R') spec.add_axis(name, size, replicate, partial, replicate);
        if (role == '1') spec.add_axis(name, size, replicate, partial, shard);
        if (role == '2') spec.add_axis(name, size, replicate, shard, shard);
        if (role == '3') spec.add_axis(name, size, shard, shard, shard);
        if (role == 'p') spec.add_axis(name, size, shard, partial, shard);
    }
}

Described describe(const std::vector<UnitModel> &units, const std::string &mesh,
                   const vescomm_fsdp_spec_options_t &options) {
    Described described{Spec(options), {}};
    use_mesh(described.spec, mesh);
    for (const UnitModel &unit : units) {
        const std::uint64_t number = described.spec.add_unit(unit.name, unit.flags);
        described.ids.emplace_back();
        for (const ParameterSpec &parameter : unit.parameters)
            described.ids.back().push_back(described.spec.add_parameter(number, parameter));
    }
    return described;
}

std::vector<std::uint64_t> all_ids(const Described &described) {
    std::vector<std::uint64_t> all;
    for (const auto &ids : described.ids) all.insert(all.end(), ids.begin(), ids.end());
    return all;
}

void fill(Engine &engine) {
    engine.initialise(
        [](std::uint64_t id, std::int64_t first, std::span<float> values, std::uint64_t) {
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = initial(id, first + static_cast<std::int64_t>(i));
        });
}

std::uint16_t to_bf16(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float from_bf16(std::uint16_t half) {
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

std::uint16_t to_f16(float x) {
    const auto code = [](float size) {
        if (std::isnan(size)) return 0x7e00;
        if (size >= 65520) return 0x7c00;
        if (size < 0x1p-14f) return static_cast<int>(std::nearbyint(size * 0x1p24f));
        int exponent = 0;
        std::frexp(size, &exponent);
        // From 1024 to 2048; the last is the next exponent.
        const auto significand = static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent)));
        return ((exponent + 14) << 10) + significand - 1024;
    };
    return static_cast<std::uint16_t>(code(std::fabs(x)) | (std::signbit(x) ? 0x8000 : 0));
}

float from_f16(std::uint16_t half) {
    const int exponent = (half >> 10) & 31;
    const int fraction = half & 0x3ff;
    float size = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    if (exponent == 0) size = std::ldexp(static_cast<float>(fraction), -24);
    if (exponent == 31) size = fraction == 0 ? HUGE_VALF : NAN;
    return (half & 0x8000) != 0 ? -size : size;
}

void write_gradients(Engine &engine, const std::vector<std::uint64_t> &ids, int step, int part,
                     int parts, bool push) {
    for (const std::uint64_t id : ids) {
        if (push) {
            const std::int64_t count = engine.parameter(id).elements;
            std::vector<float> terms;
            for (std::int64_t i = 0; i < count; ++i)
                terms.push_back(
                    static_cast<float>(gradient_term(total_gradient(id, i, step), part, parts)));
            engine.push_gradient(id, terms.data(), VESCOMM_F32);
            continue;
        }
        const auto [view, mode] = engine.gradient(id);
        for (std::int64_t i = 0; i < view.elements; ++i) {
            const auto term =
                static_cast<float>(gradient_term(total_gradient(id, i, step), part, parts));
            write(view, i, mode == VESCOMM_FSDP_ADD ? read(view, i) + term : term);
        }
    }
}

std::vector<float> read_all(Engine &engine, const std::vector<std::vector<std::uint64_t>> &ids) {
    std::vector<float> seen;
    engine.begin(VESCOMM_FSDP_EVAL);
    for (std::size_t unit = 0; unit < ids.size(); ++unit) {
        engine.pre_forward(unit);
        for (const std::uint64_t id : ids[unit]) {
            const vescomm_fsdp_view_t view = engine.parameter(id);
            for (std::int64_t i = 0; i < view.elements; ++i) seen.push_back(read(view, i));
        }
        engine.post_forward(unit);
    }
    return seen;
}

void micro_batch(Engine &engine, const std::vector<std::vector<std::uint64_t>> &ids,
                 const Training &training, int step, int part, int parts, bool last) {
    engine.begin(last ? VESCOMM_FSDP_LAST : 0);
    for (std::size_t unit = 0; unit < ids.size(); ++unit) {
        engine.pre_forward(unit);
        engine.post_forward(unit);
    }
    for (std::size_t unit = ids.size(); unit-- > 0;) {
        engine.pre_backward(unit);
        if (training.recompute) engine.pre_forward(unit);
        write_gradients(engine, ids[unit], step, part, parts, training.push);
        if (training.recompute) engine.post_forward(unit);
        engine.post_backward(unit);
    }
    engine.finish_backward();
}

Outcome train(Communicator &comm, const Described &described, const Training &training) {
    Engine engine(described.spec, comm);
    fill(engine);
    Outcome outcome;
    vescomm_fsdp_counters_t before{};
    for (int step = 0; step < training.steps; ++step) {
        before = engine.counters();
        for (int micro = 0; micro < training.micro_batches; ++micro)
            micro_batch(engine, described.ids, training, step,
                        comm.rank() * training.micro_batches + micro,
                        comm.ranks() * training.micro_batches, micro + 1 == training.micro_batches);
        vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
        arguments.max_norm = training.max_norm;
        outcome.norms.push_back(engine.step(arguments).norm);
    }
    outcome.counters = engine.counters();
    outcome.counters.gathers -= before.gathers;
    outcome.counters.gather_bytes -= before.gather_bytes;
    outcome.counters.reduce_bytes -= before.reduce_bytes;
    outcome.counters.replica_bytes -= before.replica_bytes;
    outcome.parameters = read_all(engine, described.ids);
    return outcome;
}

Outcome train_on(int ranks, const std::vector<UnitModel> &units, const std::string &preset,
                 const vescomm_fsdp_spec_options_t &options, const Training &training,
                 const std::vector<int> &node_of) {
    std::vector<Outcome> outcomes(ranks);
    run_ranks(
        ranks,
        [&](Communicator &comm) {
            outcomes[comm.rank()] = train(comm, describe(units, preset, options), training);
        },
        node_of);
    for (const Outcome &outcome : outcomes) {
        EXPECT_EQ(outcome.parameters, outcomes[0].parameters);
        EXPECT_EQ(outcome.norms, outcomes[0].norms);
    }
    return outcomes[0];
}

}  // namespace vescomm::fsdp::testing
