// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Gathers in 8 bits: blocks that do not depend on the number of ranks, exact values on every rank,
// bytes as reported, and errors.
#include <cmath>
#include <mutex>

#include "fsdp/gather_blocks.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

vescomm_fsdp_spec_options_t options(vescomm_type_t gather_type, std::int32_t block = 0,
                                    vescomm_type_t compute_type = VESCOMM_F32) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.gather_type = gather_type;
    options.gather_block = block;
    options.compute_type = compute_type;
    return options;
}

// Parameters whose blocks are parts of a row, several rows, and parts of a batch.
std::vector<UnitModel> wide_model() {
    return {{"first",
             {{.name = "long rows", .shape = {9, 301}},
              {.name = "whole", .shape = {40, 1000}, .block_rows = -1},
              {.name = "norm", .shape = {77}, .gather_type = VESCOMM_F32}}},
            {"second", {{.name = "experts", .shape = {7, 5, 11}, .batch_dimensions = 1}}},
            {"third", {{.name = "empty", .shape = {0, 8}}}}};
}

// The parameters for the planner of the engine.
std::vector<GatherParameter> parameters_of(const std::vector<UnitModel> &units) {
    std::vector<GatherParameter> parameters;
    for (std::size_t unit = 0; unit < units.size(); ++unit)
        for (const ParameterSpec &from : units[unit].parameters)
            parameters.push_back({unit, from.name, from.shape, from.block_rows, from.block_elements,
                                  from.batch_dimensions, from.gather_type});
    return parameters;
}

TEST(GatherCodes, BlocksDoNotDependOnTheNumberOfRanks) {
    for (const auto &units : {odd_model(), wide_model()})
        for (const int block : {1, 7, 64, 128, 1000, 100000}) {
            const auto parameters = parameters_of(units);
            const GatherBlocks alone = gather_blocks(parameters, options(VESCOMM_I8, block), 1);
            std::size_t quantised = 0;
            for (const UnitModel &unit : units)
                for (const ParameterSpec &parameter : unit.parameters)
                    if (parameter.gather_type == 0)
                        quantised += static_cast<std::size_t>(elements(parameter));
            EXPECT_EQ(alone.size(), quantised);
            for (const auto &[element, range] : alone) ASSERT_LE(range.second, block);
            for (const int ranks : {2, 3, 5, 7, 64})
                ASSERT_EQ(gather_blocks(parameters, options(VESCOMM_I8, block), ranks), alone)
                    << ranks << " ranks, " << block;
        }
}

// Values as the engine has to see them: every block of a parameter quantised alone.
std::vector<float> expected_values(const std::vector<UnitModel> &units,
                                   const vescomm_fsdp_spec_options_t &options,
                                   const std::vector<std::vector<float>> &masters) {
    const GatherBlocks blocks = gather_blocks(parameters_of(units), options, 1);
    std::vector<float> all;
    for (std::size_t id = 0; id < masters.size(); ++id) {
        std::vector<float> values = masters[id];
        for (auto at = blocks.lower_bound({id, 0}); at != blocks.end() && at->first.first == id;) {
            const auto [first, size] = at->second;
            quantise_block(options.gather_type, &values[static_cast<std::size_t>(first)],
                           static_cast<std::size_t>(size));
            at = blocks.lower_bound({id, first + size});
        }
        if (options.compute_type == VESCOMM_BF16)
            for (float &value : values) value = from_bf16(to_bf16(value));
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

void expect_exact(const std::vector<UnitModel> &units, const vescomm_fsdp_spec_options_t &options,
                  const std::string &preset, int ranks, const std::vector<int> &nodes = {}) {
    run_ranks(
        ranks,
        [&](Communicator &comm) {
            const Described described = describe(units, preset, options);
            Engine engine(described.spec, comm);
            fill(engine);
            std::vector<std::vector<float>> masters;
            for (std::size_t unit = 0; unit < units.size(); ++unit)
                for (std::size_t i = 0; i < described.ids[unit].size(); ++i) {
                    masters.emplace_back();
                    for (std::int64_t e = 0; e < elements(units[unit].parameters[i]); ++e)
                        masters.back().push_back(initial(described.ids[unit][i], e));
                }
            const std::vector<float> expected = expected_values(units, options, masters);
            // Twice, so that slots are used again.
            for (int time = 0; time < 2; ++time)
                ASSERT_EQ(read_all(engine, described.ids), expected)
                    << preset << ", " << ranks << " ranks";
        },
        nodes);
}

TEST(QuantisedGather, ValuesAreThoseOfQuantisedMastersOnEveryRank) {
    for (const vescomm_type_t type : {VESCOMM_I8, VESCOMM_F8E4M3})
        for (const int ranks : {1, 2, 3, 5, 7}) {
            expect_exact(odd_model(), options(type), "zero3", ranks);
            expect_exact(wide_model(), options(type, 100), "zero3", ranks);
        }
    for (const char *preset : {"zero1", "zero2", "ddp", "hsdp:2"})
        expect_exact(odd_model(), options(VESCOMM_I8, 24, VESCOMM_BF16), preset, 4);
    vescomm_fsdp_spec_options_t one_slot = options(VESCOMM_I8);
    one_slot.slots = 1;
    expect_exact(wide_model(), one_slot, "zero3", 3);
    for (const std::vector<int> &nodes :
         {std::vector<int>{0, 1}, std::vector<int>{0, 0, 1}, std::vector<int>{0, 1, 2, 0, 1}})
        for (const char *preset : {"zero3", "zero2"})
            expect_exact(wide_model(), options(VESCOMM_F8E4M3), preset,
                         static_cast<int>(nodes.size()), nodes);
}

// Gradients do not depend on the parameters here, so the masters are those of any other type.
TEST(QuantisedGather, TrainsTheSameBitsOnAnyNumberOfRanks) {
    const Outcome alone = train_on(1, odd_model(), "zero3", options(VESCOMM_I8), {});
    for (const int ranks : {2, 3, 5}) {
        const Outcome outcome = train_on(ranks, odd_model(), "zero3", options(VESCOMM_I8),
                                         {.micro_batches = 2, .recompute = true});
        EXPECT_EQ(outcome.parameters, alone.parameters);
    }
}

// A block of equal masters has an error of one rounding; the largest error of any element is that
// of the documentation.
TEST(QuantisedGather, ErrorsAreAtMostThoseOfTheDocumentation) {
    const std::vector<UnitModel> units = {{"unit", {{.name = "w", .shape = {256, 128}}}}};
    for (const vescomm_type_t type : {VESCOMM_I8, VESCOMM_F8E4M3})
        run_ranks(3, [&](Communicator &comm) {
            const Described described = describe(units, "zero3", options(type));
            Engine engine(described.spec, comm);
            fill(engine);
            const std::vector<float> seen = read_all(engine, described.ids);
            double squares = 0;
            double errors = 0;
            for (std::size_t row = 0; row < 256; ++row) {
                float max = 0;
                for (std::size_t i = 0; i < 128; ++i)
                    max = std::max(max,
                                   std::fabs(initial(0, static_cast<std::int64_t>(row * 128 + i))));
                for (std::size_t i = row * 128; i < (row + 1) * 128; ++i) {
                    const float x = initial(0, static_cast<std::int64_t>(i));
                    const float bound =
                        type == VESCOMM_I8 ? max / 254 : std::max(std::fabs(x) / 16, max / 458752);
                    ASSERT_LE(std::fabs(seen[i] - x), bound * 1.0001f);
                    squares += double{x} * x;
                    errors += double{seen[i] - x} * (seen[i] - x);
                }
            }
            EXPECT_LT(std::sqrt(errors / squares), type == VESCOMM_I8 ? 0.005 : 0.03);
            EXPECT_GT(errors, 0);
        });
}

TEST(QuantisedGather, AllocatesAndSendsWhatTheReportSays) {
    for (const char *preset : {"ddp", "zero1", "hsdp:3"})
        for (const int slots : {1, 3})
            run_ranks(6, [&](Communicator &comm) {
                vescomm_fsdp_spec_options_t chosen = options(VESCOMM_F8E4M3, 32, VESCOMM_BF16);
                chosen.slots = chosen.gradient_slots = slots;
                const Described described = describe(odd_model(), preset, chosen);
                const vescomm_fsdp_report_t report =
                    described.spec.report(comm.ranks(), comm.rank(), 2);
                const Outcome outcome = train(comm, described, {.micro_batches = 2});
                EXPECT_GT(report.code_bytes, 0u);
                EXPECT_EQ(outcome.counters.allocated_bytes, report.peak_bytes) << preset;
                EXPECT_EQ(outcome.counters.gathers, report.gathers_per_step) << preset << slots;
                EXPECT_EQ(outcome.counters.gather_bytes, report.gather_bytes_per_step) << preset;
            });
}

// One value, or a few, for each index of a batch.
TEST(QuantisedGather, ParametersForWhichCodesAreNotSmallerKeepTheirType) {
    struct Traffic {
        std::uint64_t gathers, sums;
    };
    const auto traffic_of = [](vescomm_type_t code_type, vescomm_type_t compute_type,
                               const std::vector<std::int64_t> &shape) {
        vescomm_fsdp_spec_options_t chosen = options(code_type, 0, compute_type);
        chosen.reduce_type = code_type;
        Spec spec(chosen);
        spec.add_unit("unit");
        spec.add_parameter(0, {.name = "w", .shape = shape, .batch_dimensions = 1});
        const vescomm_fsdp_report_t report = spec.report(2);
        return Traffic{report.gather_bytes_per_step, report.reduce_bytes_per_step};
    };
    for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16})
        for (const std::int64_t row : {1, 2, 3, 4, 5, 8, 64, 128, 200}) {
            const std::vector<std::int64_t> shape = {4096, row};
            const Traffic exact = traffic_of(0, type, shape);
            const Traffic codes = traffic_of(VESCOMM_I8, type, shape);
            const std::int64_t size = type == VESCOMM_F32 ? 4 : 2;
            const bool smaller = row + 4 < row * size;
            EXPECT_EQ(codes.gathers < exact.gathers, smaller) << row;
            EXPECT_EQ(codes.sums < exact.sums, smaller) << row;
            EXPECT_LE(codes.gathers, exact.gathers) << row;
            EXPECT_LE(codes.sums, exact.sums) << row;
        }
    EXPECT_EQ(traffic_of(VESCOMM_I8, VESCOMM_F32, {4096}).gathers,
              traffic_of(0, VESCOMM_F32, {4096}).gathers);
    const std::vector<UnitModel> units = {
        {"unit",
         {{.name = "rows", .shape = {9, 50}},
          {.name = "of each", .shape = {37}, .batch_dimensions = 1},
          {.name = "small", .shape = {11, 2, 1}, .batch_dimensions = 2}}}};
    for (const int ranks : {1, 2, 3}) expect_exact(units, options(VESCOMM_I8), "zero3", ranks);
    // Sums of whole numbers are exact in f32.
    const std::vector<UnitModel> small = {
        {"unit", {units[0].parameters[1], units[0].parameters[2]}}};
    vescomm_fsdp_spec_options_t sums = options(0);
    const Outcome exact = train_on(3, small, "zero3", sums, {});
    sums.reduce_type = VESCOMM_I8;
    EXPECT_EQ(train_on(3, small, "zero3", sums, {}).parameters, exact.parameters);
    // A unit with both kinds of gradients.
    train_on(3, units, "zero3", sums, {.micro_batches = 2});
}

std::uint64_t bytes_sent(Engine &engine) {
    vescomm_comm_counters_t counters = vescomm_comm_counters_init();
    check(vescomm_comm_get_counters(engine.comm(), &counters));
    return counters.bytes_sent;
}

// One rank on each node: the bytes on the wire are those of the report within two percent, and at
// most 27 % of those in f32.
TEST(QuantisedGather, SendsAQuarterOfTheBytesBetweenNodes) {
    const std::vector<UnitModel> units = {{"a", {{.name = "w", .shape = {600, 256}}}},
                                          {"b", {{.name = "w", .shape = {400, 256}}}}};
    const auto sent = [&](vescomm_type_t type) {
        double total = 0;
        std::mutex mutex;
        run_ranks(3,
                  [&](Communicator &comm) {
                      const Described described = describe(units, "zero3", options(type));
                      Engine engine(described.spec, comm);
                      fill(engine);
                      const auto pass = [&] {
                          engine.begin(VESCOMM_FSDP_EVAL);
                          for (std::uint64_t unit = 0; unit < 2; ++unit) {
                              engine.unshard(unit);
                              engine.pre_forward(unit);
                              engine.post_forward(unit);
                              engine.reshard(unit);
                          }
                      };
                      pass();
                      const std::uint64_t before = bytes_sent(engine);
                      const vescomm_fsdp_counters_t counted = engine.counters();
                      for (int time = 0; time < 4; ++time) {
                          // Between gathers of the same masters the slots are emptied.
                          fill(engine);
                          pass();
                      }
                      // The other ranks have received all bytes.
                      comm.barrier();
                      const auto mine = static_cast<double>(bytes_sent(engine) - before);
                      const double needed = static_cast<double>(engine.counters().gather_bytes -
                                                                counted.gather_bytes);
                      const std::lock_guard lock(mutex);
                      total += mine / needed / 3;
                      if (comm.rank() == 0) {
                          EXPECT_NEAR(needed,
                                      type == 0 ? 4 * 4 * 256000. * 2 / 3
                                                : 4 * 256000. * (1 + 4. / 128) * 2 / 3,
                                      needed * 0.02);
                      }
                  },
                  {0, 1, 2});
        return total;
    };
    EXPECT_NEAR(sent(0), 1, 0.02);
    EXPECT_NEAR(sent(VESCOMM_I8), 1, 0.02);
}

// A rank that reads a unit early does not wait for the others, which read it later or not at all.
TEST(QuantisedGather, ARankReadsAnUnshardedUnitAlone) {
    for (const std::vector<int> &nodes : {std::vector<int>{}, std::vector<int>{0, 0, 1}})
        run_ranks(
            3,
            [&](Communicator &comm) {
                const Described described = describe(odd_model(), "zero3", options(VESCOMM_I8));
                Engine engine(described.spec, comm);
                fill(engine);
                engine.begin(VESCOMM_FSDP_EVAL);
                engine.unshard(1);
                if (comm.rank() == 1) {
                    EXPECT_NEAR(read(engine.parameter(described.ids[1][0]), 5),
                                initial(described.ids[1][0], 5), 0.01);
                }
                comm.barrier();
                engine.pre_forward(0);
                engine.post_forward(0);
                engine.reshard(1);
            },
            nodes);
}

void expect_refused(const std::function<void()> &body, const char *sentence) {
    try {
        body();
        ADD_FAILURE() << "accepted: " << sentence;
    } catch (const Error &error) {
        EXPECT_NE(std::string(error.what()).find(sentence), std::string::npos) << error.what();
    }
}

TEST(QuantisedGather, RefusesOtherTypesAndBlocks) {
    expect_refused([] { Spec spec(options(VESCOMM_BF16)); }, "gather_type is 2; it must be");
    expect_refused([] { Spec spec(options(VESCOMM_I8, -1)); }, "gather_block is -1; it must be");
    expect_refused([] { Spec spec(options(VESCOMM_I8, 1 << 21)); }, "gather_block is 2097152");
    Spec spec;
    spec.add_unit("unit");
    expect_refused(
        [&] { spec.add_parameter(0, {.name = "w", .shape = {3}, .gather_type = VESCOMM_BF16}); },
        "gather_type of parameter \"unit.w\" is 2");
    run_ranks(2, [](Communicator &comm) {
        const Described described =
            describe(wide_model(), "zero3", options(VESCOMM_I8, comm.rank() == 0 ? 64 : 65));
        expect_refused([&] { Engine engine(described.spec, comm); },
                       "gather_block, which is 64 on rank 0 and 65 on rank 1");
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
