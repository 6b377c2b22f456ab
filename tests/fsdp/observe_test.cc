// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Counters of units, metrics, and spans of events in a trace.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

class Observe : public ::testing::TestWithParam<const char *> {};

TEST_P(Observe, CountersOfUnitsAddUpToThoseOfTheEngine) {
    for (const int ranks : {1, 2, 3})
        run_ranks(ranks, [&](Communicator &comm) {
            const Described described = describe(odd_model(), GetParam());
            Engine engine(described.spec, comm);
            fill(engine);
            for (int step = 0; step < 2; ++step) {
                micro_batch(engine, described.ids, {.recompute = step == 1}, step, comm.rank(),
                            ranks, true);
                engine.step();
            }
            engine.begin(VESCOMM_FSDP_EVAL);
            engine.unshard(0);
            engine.reshard(0);
            const vescomm_fsdp_counters_t all = engine.counters();
            std::uint64_t gathers = 0, gather_bytes = 0, reduce_bytes = 0;
            double seconds = 0;
            for (std::uint64_t unit = 0; unit < described.ids.size(); ++unit) {
                const vescomm_fsdp_unit_counters_t one = engine.unit_counters(unit);
                EXPECT_GT(one.forward_seconds, 0);
                EXPECT_GT(one.backward_seconds, 0);
                EXPECT_EQ(one.explicit_seconds > 0, unit == 0);
                gathers += one.gathers;
                gather_bytes += one.gather_bytes;
                reduce_bytes += one.reduce_bytes;
                seconds += one.forward_seconds + one.backward_seconds + one.explicit_seconds;
            }
            EXPECT_GT(gathers, 0);
            EXPECT_EQ(gathers, all.gathers);
            EXPECT_EQ(gather_bytes, all.gather_bytes);
            EXPECT_EQ(reduce_bytes, all.reduce_bytes);
            EXPECT_LE(seconds, all.exposed_seconds + all.optimizer_seconds);
            try {
                engine.unit_counters(described.ids.size());
                ADD_FAILURE() << "there is no such unit";
            } catch (const Error &error) {
                EXPECT_EQ(error.status(), VESCOMM_ERROR_INVALID_ARGUMENT);
            }
        });
}

TEST_P(Observe, MetricsAreTheCountersAsText) {
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model(), GetParam());
        Engine engine(described.spec, comm);
        const Engine other(described.spec, comm);
        fill(engine);
        micro_batch(engine, described.ids, {}, 0, comm.rank(), 2, true);
        engine.step();
        const std::string text = engine.metrics();
        const auto sample = [&](const std::string &name, const std::string &more = "") {
            const std::size_t begin =
                text.find("\n" + name + "{rank=\"" + std::to_string(comm.rank()) + "\",engine=\"");
            const std::size_t value = text.find(more + "} ", begin);
            EXPECT_NE(begin, std::string::npos) << name;
            return value == std::string::npos ? -1
                                              : std::stod(text.substr(value + more.size() + 2));
        };
        EXPECT_EQ(sample("vescomm_fsdp_broken"), 0);
        EXPECT_EQ(sample("vescomm_fsdp_steps_total"), 1);
        EXPECT_EQ(sample("vescomm_fsdp_allocated_bytes"), engine.counters().allocated_bytes);
        EXPECT_EQ(sample("vescomm_fsdp_gathers_total"), engine.counters().gathers);
        EXPECT_EQ(sample("vescomm_fsdp_gradient_norm"), engine.step_summary().norm);
        EXPECT_EQ(sample("vescomm_fsdp_unit_gathers_total", "unit=\"block.2\""),
                  engine.unit_counters(3).gathers);
        EXPECT_EQ(sample("vescomm_fsdp_unit_seconds_total", "unit=\"block.2\",phase=\"update\""),
                  engine.unit_counters(3).update_seconds);
        EXPECT_NE(text.substr(0, text.find("} ")), other.metrics().substr(0, text.find("} ")));
        char small[8] = {'a', 's', ' ', 'i', 't', ' ', 'i', 's'};
        std::size_t size = 0;
        check(vescomm_fsdp_get_metrics(engine.get(), small, sizeof small, &size));
        EXPECT_EQ(size, engine.metrics().size() + 1);
        EXPECT_EQ(std::string(small, sizeof small), "as it is");
        EXPECT_EQ(vescomm_fsdp_get_metrics(engine.get(), nullptr, 1, &size),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
    });
}

// The summaries of all steps add up to the counters of the engine.
TEST_P(Observe, ASummaryHasTheTimesAndBytesOfItsStep) {
    for (const int ranks : {1, 2, 3})
        run_ranks(ranks, [&](Communicator &comm) {
            const Described described = describe(odd_model(), GetParam());
            Engine engine(described.spec, comm);
            EXPECT_EQ(engine.step_summary().seconds, 0);
            fill(engine);
            const double begin = vescomm_trace_get_seconds();
            vescomm_fsdp_step_summary_t sum = vescomm_fsdp_step_summary_init();
            for (int number = 0; number < 3; ++number) {
                micro_batch(engine, described.ids, {}, number, comm.rank(), ranks, true);
                const vescomm_fsdp_step_t step = engine.step();
                const vescomm_fsdp_step_summary_t one = engine.step_summary();
                EXPECT_EQ(one.step, number + 1);
                EXPECT_EQ(one.skipped, 0);
                EXPECT_EQ(one.norm, step.norm);
                EXPECT_GT(one.update_seconds, 0);
                EXPECT_GT(one.norm_seconds, 0);
                EXPECT_GT(one.agree_seconds, 0);
                EXPECT_GT(one.early_gathers, 0);
                constexpr double rounding = 1e-9;
                EXPECT_LE(one.gather_seconds + one.reduce_seconds + one.agree_seconds,
                          one.exposed_seconds + rounding);
                EXPECT_LE(one.exposed_seconds + one.norm_seconds + one.update_seconds,
                          one.seconds + rounding);
                EXPECT_LE(one.step_seconds, one.seconds);
                sum.exposed_seconds += one.exposed_seconds;
                sum.update_seconds += one.norm_seconds + one.update_seconds;
                sum.gathers += one.gathers;
                sum.gather_bytes += one.gather_bytes;
                sum.reduce_bytes += one.reduce_bytes;
                sum.replica_bytes += one.replica_bytes;
                if (number == 2) {
                    EXPECT_LE(one.seconds, vescomm_trace_get_seconds() - begin);
                }
            }
            const vescomm_fsdp_counters_t all = engine.counters();
            EXPECT_NEAR(sum.exposed_seconds, all.exposed_seconds, 1e-9);
            EXPECT_NEAR(sum.update_seconds, all.optimizer_seconds, 1e-9);
            EXPECT_EQ(sum.gathers, all.gathers);
            EXPECT_EQ(sum.gather_bytes, all.gather_bytes);
            EXPECT_EQ(sum.reduce_bytes, all.reduce_bytes);
            EXPECT_EQ(sum.replica_bytes, all.replica_bytes);
            double updates = 0;
            for (std::uint64_t unit = 0; unit < described.ids.size(); ++unit)
                updates += engine.unit_counters(unit).update_seconds;
            EXPECT_GT(updates, 0);
        });
}

std::size_t occurrences(const std::string &text, const std::string &word) {
    std::size_t count = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        ++count;
    return count;
}

TEST_P(Observe, ATraceHasASpanForEachEvent) {
    constexpr int ranks = 2, steps = 2;
    std::string path = (std::filesystem::temp_directory_path() / "observe_test.XXXXXX").string();
    const int file = mkstemp(path.data());
    ASSERT_GE(file, 0);
    close(file);
    run_ranks(ranks, [&](Communicator &comm) {
        const Described described = describe(odd_model(), GetParam());
        Engine engine(described.spec, comm);
        fill(engine);
        const auto step = [&](int number) {
            micro_batch(engine, described.ids, {}, number, comm.rank(), ranks, true);
            engine.step();
        };
        step(0);  // not traced
        check(vescomm_trace_start(engine.comm(), 0));
        for (int number = 1; number <= steps; ++number) step(number);
        check(vescomm_trace_write(engine.comm(), path.c_str()));
    });
    std::ifstream input(path);
    const std::string text{std::istreambuf_iterator<char>(input), {}};
    std::filesystem::remove(path);
    const auto spans = [&](const std::string &name) {
        return occurrences(text, "\"" + name + "\"");
    };
    for (const UnitModel &unit : odd_model())
        for (const char *event :
             {"pre_forward ", "post_forward ", "pre_backward ", "post_backward ", "update "})
            EXPECT_EQ(spans(event + std::string(unit.name)), ranks * steps) << event << unit.name;
    for (const char *event : {"begin", "finish_backward", "step"})
        EXPECT_EQ(spans(event), ranks * steps) << event;
    EXPECT_EQ(spans("gradient"), 0);
}

INSTANTIATE_TEST_SUITE_P(Presets, Observe, ::testing::Values("zero3", "zero1", "ddp"),
                         [](const auto &preset) { return std::string(preset.param); });

}  // namespace
}  // namespace vescomm::fsdp::testing
