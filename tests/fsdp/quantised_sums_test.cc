// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Sums of gradients that travel in 8 bits: exact values, the same bits on every rank and node,
// bytes as reported, steps that are not finite.
#include <cmath>
#include <limits>
#include <mutex>

#include "fsdp/gather_blocks.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

vescomm_fsdp_spec_options_t options(vescomm_type_t reduce_type, std::int32_t block = 0) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.reduce_type = reduce_type;
    options.gather_block = block;
    return options;
}

std::vector<UnitModel> model() {
    return {{"first",
             {{.name = "rows", .shape = {9, 301}}, {.name = "frozen", .shape = {5}, .flags = 1}}},
            {"second",
             {{.name = "experts", .shape = {7, 5, 11}, .batch_dimensions = 1},
              {.name = "empty", .shape = {0, 8}}}},
            {"third", {{.name = "bias", .shape = {19}}}}};
}

std::vector<GatherParameter> parameters_of(const std::vector<UnitModel> &units) {
    std::vector<GatherParameter> parameters;
    for (std::size_t unit = 0; unit < units.size(); ++unit)
        for (const ParameterSpec &from : units[unit].parameters)
            parameters.push_back({unit, from.name, from.shape, from.block_rows, from.block_elements,
                                  from.batch_dimensions, 0});
    return parameters;
}

// The contribution of a rank in a micro-batch: magnitudes differ between elements and ranks.
float contribution(std::uint64_t id, std::int64_t element, int rank, int micro) {
    const auto hash = static_cast<std::uint32_t>(element * 2654435761 + static_cast<int>(id) * 97 +
                                                 rank * 1013 + micro * 7919);
    return static_cast<float>(static_cast<std::int32_t>(hash * 2246822519u)) * 0x1p-31f *
           static_cast<float>(rank + 1);
}

// Gradients after one step of `micro_batches`, by parameter: contributions quantised in blocks, and
// summed in the order of ranks.
std::vector<std::vector<float>> expected_sums(const std::vector<UnitModel> &units,
                                              vescomm_type_t type, std::int32_t block, int ranks,
                                              int micro_batches) {
    // The blocks of gradients are those of parameters in 8 bits.
    const GatherBlocks blocks = gather_blocks(
        parameters_of(units),
        [&] {
            vescomm_fsdp_spec_options_t as_parameters = options(0, block);
            as_parameters.gather_type = type;
            return as_parameters;
        }(),
        1);
    std::vector<std::vector<float>> sums;
    for (const UnitModel &unit : units)
        for (const ParameterSpec &parameter : unit.parameters) {
            const std::size_t id = sums.size();
            const auto count = static_cast<std::size_t>(elements(parameter));
            sums.emplace_back(count, 0.0f);
            for (int micro = 0; micro < micro_batches; ++micro) {
                std::vector<float> sum(count, 0.0f);
                for (int rank = 0; rank < ranks; ++rank) {
                    std::vector<float> values;
                    for (std::size_t i = 0; i < count; ++i)
                        values.push_back(
                            contribution(id, static_cast<std::int64_t>(i), rank, micro));
                    for (std::size_t first = 0; first < count;) {
                        const auto size = static_cast<std::size_t>(
                            blocks.at({id, static_cast<std::int64_t>(first)}).second);
                        quantise_block(type, &values[first], size);
                        first += size;
                    }
                    for (std::size_t i = 0; i < count; ++i)
                        sum[i] = rank == 0 ? values[i] : sum[i] + values[i];
                }
                for (std::size_t i = 0; i < count; ++i)
                    sums[id][i] = micro == 0 ? sum[i] : sums[id][i] + sum[i];
            }
        }
    return sums;
}

void run_step(Engine &engine, const Described &described, int rank, int micro_batches) {
    for (int micro = 0; micro < micro_batches; ++micro) {
        engine.begin(micro + 1 == micro_batches ? VESCOMM_FSDP_LAST : 0);
        for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
            engine.pre_forward(unit);
            engine.post_forward(unit);
        }
        for (std::size_t unit = described.ids.size(); unit-- > 0;) {
            engine.pre_backward(unit);
            for (const std::uint64_t id : described.ids[unit]) {
                if (id == 1) continue;  // frozen
                const std::int64_t count = engine.parameter(id).elements;
                std::vector<float> values;
                for (std::int64_t i = 0; i < count; ++i)
                    values.push_back(contribution(id, i, rank, micro));
                engine.push_gradient(id, values.data(), VESCOMM_F32);
            }
            engine.post_backward(unit);
        }
        engine.finish_backward();
    }
}

void expect_sums(vescomm_type_t type, const std::string &preset, int ranks, int micro_batches,
                 const std::vector<int> &nodes = {}, int gradient_slots = 2) {
    const auto expected = expected_sums(model(), type, 48, ranks, micro_batches);
    run_ranks(
        ranks,
        [&](Communicator &comm) {
            vescomm_fsdp_spec_options_t chosen = options(type, 48);
            chosen.gradient_slots = gradient_slots;
            const Described described = describe(model(), preset, chosen);
            const vescomm_fsdp_report_t report =
                described.spec.report(comm.ranks(), comm.rank(), micro_batches);
            Engine engine(described.spec, comm);
            for (int step = 0; step < 2; ++step) {
                const vescomm_fsdp_counters_t before = engine.counters();
                run_step(engine, described, comm.rank(), micro_batches);
                const vescomm_fsdp_counters_t after = engine.counters();
                EXPECT_EQ(after.reduce_bytes - before.reduce_bytes, report.reduce_bytes_per_step);
                EXPECT_EQ(after.allocated_bytes, report.peak_bytes);
                for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
                    const vescomm_fsdp_view_t shard = engine.shard(unit, VESCOMM_FSDP_GRADIENT);
                    for (const auto &piece : engine.pieces(unit)) {
                        if (piece.parameter == 1) continue;
                        for (std::int64_t i = 0; i < piece.elements; ++i)
                            ASSERT_EQ(static_cast<const float *>(shard.data)[piece.offset + i],
                                      expected[piece.parameter]
                                              [static_cast<std::size_t>(piece.first + i)])
                                << preset << ", " << ranks << " ranks";
                    }
                }
                EXPECT_EQ(engine.step().skipped, 0);
            }
        },
        nodes);
}

TEST(QuantisedSums, AreExactSumsOfRoundedContributions) {
    for (const vescomm_type_t type : {VESCOMM_I8, VESCOMM_F8E4M3})
        for (const int ranks : {1, 2, 3, 5}) expect_sums(type, "zero3", ranks, 1);
    expect_sums(VESCOMM_I8, "zero3", 3, 3);
    expect_sums(VESCOMM_I8, "zero3", 7, 1, {}, 1);
    expect_sums(VESCOMM_I8, "zero2", 2, 2, {}, 1);
    expect_sums(VESCOMM_I8, "zero1", 3, 1);
    expect_sums(VESCOMM_I8, "zero3", 3, 2, {0, 0, 1});
    expect_sums(VESCOMM_I8, "zero3", 5, 1, {0, 1, 2, 0, 1});
}

TEST(QuantisedSums, AGradientThatIsNotFiniteSkipsTheStepOnAllRanks) {
    for (const float bad : {std::numeric_limits<float>::infinity(), NAN})
        run_ranks(3, [&](Communicator &comm) {
            const Described described = describe(model(), "zero3", options(VESCOMM_I8));
            Engine engine(described.spec, comm);
            fill(engine);
            const std::vector<float> before = read_all(engine, described.ids);
            for (const bool poisoned : {true, false}) {
                engine.begin(VESCOMM_FSDP_LAST);
                engine.pre_forward(0);
                engine.post_forward(0);
                engine.pre_backward(0);
                std::vector<float> values(9 * 301, 1);
                if (poisoned && comm.rank() == 1) values[1234] = bad;
                engine.push_gradient(0, values.data(), VESCOMM_F32);
                engine.post_backward(0);
                engine.finish_backward();
                const vescomm_fsdp_step_t step = engine.step();
                EXPECT_EQ(step.skipped, poisoned ? 1 : 0);
                EXPECT_EQ(std::isfinite(step.norm), !poisoned);
                EXPECT_EQ(read_all(engine, described.ids) == before, poisoned);
            }
        });
}

// One rank on each node.
TEST(QuantisedSums, SendAQuarterOfTheBytesBetweenNodes) {
    const std::vector<UnitModel> units = {{"unit", {{.name = "w", .shape = {600, 256}}}}};
    run_ranks(3,
              [&](Communicator &comm) {
                  const Described described = describe(units, "zero3", options(VESCOMM_I8));
                  Engine engine(described.spec, comm);
                  const auto sent = [&] {
                      vescomm_comm_counters_t counters = vescomm_comm_counters_init();
                      check(vescomm_comm_get_counters(engine.comm(), &counters));
                      return counters.bytes_sent;
                  };
                  std::vector<float> values(600 * 256, 1);
                  const auto sum = [&] {
                      engine.pre_backward(0);
                      engine.push_gradient(0, values.data(), VESCOMM_F32);
                      engine.post_backward(0);
                      engine.finish_backward();
                  };
                  // The parameters stay gathered from forward to backward.
                  const auto forward = [&](std::uint32_t flags) {
                      engine.begin(flags);
                      engine.pre_forward(0);
                      engine.post_forward(0);
                  };
                  forward(0);
                  sum();
                  forward(VESCOMM_FSDP_LAST);
                  const std::uint64_t before = sent();
                  const std::uint64_t counted = engine.counters().reduce_bytes;
                  sum();
                  const double needed =
                      static_cast<double>(engine.counters().reduce_bytes - counted);
                  EXPECT_NEAR(static_cast<double>(sent() - before), needed, needed * 0.02);
                  EXPECT_NEAR(needed, 600 * 256 * (1 + 4. / 128) * 2 / 3, needed * 0.02);
              },
              {0, 1, 2});
}

// Replicas sum in f32. One rank alone may use every preset that shards.
TEST(QuantisedSums, RefuseMeshesWithoutShards) {
    const auto error_of = [](const char *preset, int ranks) -> std::string {
        const Described described = describe(model(), preset, options(VESCOMM_I8));
        try {
            described.spec.report(ranks);
        } catch (const Error &error) {
            EXPECT_EQ(error.status(), VESCOMM_ERROR_INVALID_ARGUMENT) << error.what();
            return error.what();
        }
        return "";
    };
    const std::string refusal =
        "reduce_type is " + std::to_string(VESCOMM_I8) + " and no axis shards";
    for (const int ranks : {1, 2, 3, 5, 7})
        for (const char *preset : {"ddp", "hsdp:1", "mics:1"})
            EXPECT_NE(error_of(preset, ranks).find(refusal), std::string::npos)
                << preset << " on " << ranks << " ranks: " << error_of(preset, ranks);
    for (const int ranks : {1, 2, 3, 5, 7})
        for (const char *preset : {"zero1", "zero2", "zero3"})
            EXPECT_EQ(error_of(preset, ranks), "");
    EXPECT_EQ(error_of("hsdp:2", 4), "");
}

TEST(QuantisedSums, RefuseOtherTypes) {
    try {
        Spec spec(options(VESCOMM_F16));
        ADD_FAILURE() << "f16 was accepted";
    } catch (const Error &error) {
        EXPECT_NE(std::string(error.what()).find("reduce_type is 3; it must be VESCOMM_I8"),
                  std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
