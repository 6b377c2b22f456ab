// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Bytes and waits in the trace of an engine: they add up to its counters and to the report.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

using nlohmann::json;

struct Case {
    std::string name;
    std::string preset;
    int ranks;
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    int micro_batches = 1;
};

std::vector<Case> cases() {
    std::vector<Case> all = {{"zero3", "zero3", 2}, {"zero1", "zero1", 2},
                             {"ddp", "ddp", 2},     {"hsdp", "hsdp:2", 4},
                             {"hpz", "hpz:2", 4},   {"quantised", "zero3", 2},
                             {"micro", "zero3", 2}, {"explicit_order", "zero3", 2}};
    all[5].options.gather_type = all[5].options.reduce_type = VESCOMM_I8;
    all[6].micro_batches = 3;
    all[7].options.order = VESCOMM_FSDP_EXPLICIT;
    return all;
}

constexpr int steps = 3;

// The counters of a rank at one time.
struct Reading {
    vescomm_fsdp_counters_t all;
    std::vector<vescomm_fsdp_unit_counters_t> units;
};

Reading read_counters(const Engine &engine, std::size_t units) {
    Reading reading{engine.counters(), {}};
    for (std::size_t unit = 0; unit < units; ++unit)
        reading.units.push_back(engine.unit_counters(unit));
    return reading;
}

// Sums over spans, by rank, and those with a unit by rank and unit.
struct Sums {
    std::map<std::string, double> numbers;  // of each argument
    std::map<std::string, double> seconds;  // durations, by the first word of the name
};

struct Span {
    double begin;
    double end;
};

struct Trace {
    std::map<int, Sums> events;  // the row "fsdp"
    std::map<std::pair<int, std::string>, Sums> events_of_unit;
    std::map<std::pair<int, std::string>, Sums> transfers;  // by their kind
    std::map<std::pair<int, std::string>, Sums> transfers_of_unit;  // by "gather block.0"
    std::map<std::pair<int, std::string>, std::vector<Span>> rows;
};

void add(Sums &sums, const json &event, const std::string &word) {
    sums.seconds[word] += event["dur"].get<double>() / 1e6;
    for (const auto &[name, value] : event["args"].items())
        if (value.is_number()) sums.numbers[name] += value.get<double>();
}

Trace parse(const std::string &path) {
    std::ifstream input(path);
    const json document = json::parse(input);
    std::map<std::pair<int, int>, std::string> row_of;
    Trace trace;
    for (const json &event : document["traceEvents"]) {
        if (event["name"] == "thread_name")
            row_of[{event["pid"], event["tid"]}] = event["args"]["name"];
        if (event["ph"] != "X") continue;
        const int rank = event["pid"];
        const std::string row = row_of[{rank, event["tid"]}];
        if (!row.starts_with("fsdp")) continue;
        const std::string name = event["name"];
        const std::string word = name.substr(0, name.find(' '));
        const bool has_unit = event["args"].contains("unit");
        if (has_unit) {
            EXPECT_TRUE(name.ends_with(" " + event["args"]["unit"].get<std::string>())) << name;
        }
        EXPECT_GE(event["args"]["wait_seconds"], 0) << name;
        EXPECT_LE(event["args"]["wait_seconds"], event["dur"].get<double>() / 1e6 + 1e-6) << name;
        if (row == "fsdp") {
            EXPECT_LE(event["args"]["wait_seconds"],
                      event["args"]["exposed_seconds"].get<double>() + 1e-9)
                << name;
            add(trace.events[rank], event, word);
            if (has_unit) add(trace.events_of_unit[{rank, event["args"]["unit"]}], event, word);
            continue;
        }
        add(trace.transfers[{rank, has_unit ? word : "replicas"}], event, word);
        if (has_unit) add(trace.transfers_of_unit[{rank, name}], event, word);
        trace.rows[{rank, row}].push_back(
            {event["ts"], event["ts"].get<double>() + event["dur"].get<double>()});
    }
    return trace;
}

class EngineTrace : public ::testing::TestWithParam<Case> {};

TEST_P(EngineTrace, AddsUpToTheCountersAndTheReport) {
    const Case &with = GetParam();
    std::string path = (std::filesystem::temp_directory_path() / "trace_test.XXXXXX").string();
    const int file = mkstemp(path.data());
    ASSERT_GE(file, 0);
    close(file);
    std::vector<Reading> before(with.ranks), after(with.ranks);
    std::vector<vescomm_fsdp_report_t> reports(with.ranks);
    const std::vector<UnitModel> model = odd_model();
    run_ranks(with.ranks, [&](Communicator &comm) {
        const Described described = describe(model, with.preset, with.options);
        Engine engine(described.spec, comm);
        fill(engine);
        const auto step = [&](int number) {
            for (int micro = 0; micro < with.micro_batches; ++micro)
                micro_batch(engine, described.ids, {}, number, comm.rank(), with.ranks,
                            micro + 1 == with.micro_batches);
            engine.step();
        };
        step(0);  // not traced: requests are created
        before[comm.rank()] = read_counters(engine, model.size());
        check(vescomm_trace_start(engine.comm(), 0));
        for (int number = 1; number <= steps; ++number) step(number);
        after[comm.rank()] = read_counters(engine, model.size());
        check(vescomm_trace_write(engine.comm(), path.c_str()));
        reports[comm.rank()] = described.spec.report(with.ranks, comm.rank(), with.micro_batches);
    });
    Trace trace = parse(path);
    std::filesystem::remove(path);
    constexpr double rounding = 1e-6;  // of sums of microseconds since the machine started
    for (int rank = 0; rank < with.ranks; ++rank) {
        const Reading &begin = before[rank], &end = after[rank];
        // Events have the bytes of the transfers that they start.
        Sums &events = trace.events[rank];
        EXPECT_EQ(events.numbers["gather_bytes"],
                  static_cast<double>(end.all.gather_bytes - begin.all.gather_bytes));
        EXPECT_EQ(events.numbers["reduce_bytes"],
                  static_cast<double>(end.all.reduce_bytes - begin.all.reduce_bytes));
        EXPECT_EQ(events.numbers["replica_bytes"],
                  static_cast<double>(end.all.replica_bytes - begin.all.replica_bytes));
        // Calls of gradient() are exposed, too, and have no span.
        EXPECT_LE(events.numbers["exposed_seconds"],
                  end.all.exposed_seconds - begin.all.exposed_seconds + rounding);
        // Transfers have the bytes of the report.
        const auto bytes = [&](const char *kind) {
            return trace.transfers[{rank, kind}].numbers["bytes"];
        };
        const auto of_steps = [](std::uint64_t one) { return static_cast<double>(steps * one); };
        EXPECT_EQ(bytes("gather"), of_steps(reports[rank].gather_bytes_per_step));
        EXPECT_EQ(bytes("reduce"), of_steps(reports[rank].reduce_bytes_per_step));
        EXPECT_EQ(bytes("replicas"), of_steps(reports[rank].replica_bytes_per_step));
        for (std::size_t unit = 0; unit < model.size(); ++unit) {
            const vescomm_fsdp_unit_counters_t &from = begin.units[unit], &to = end.units[unit];
            Sums &of_unit = trace.events_of_unit[{rank, model[unit].name}];
            const double forward = to.forward_seconds - from.forward_seconds;
            const double backward = to.backward_seconds - from.backward_seconds;
            EXPECT_NEAR(of_unit.seconds["pre_forward"] + of_unit.seconds["post_forward"], forward,
                        rounding);
            EXPECT_NEAR(of_unit.seconds["pre_backward"] + of_unit.seconds["post_backward"],
                        backward, rounding);
            EXPECT_NEAR(of_unit.seconds["update"], to.update_seconds - from.update_seconds,
                        rounding);
            // Norms of sums that have ended are no communication.
            EXPECT_LE(of_unit.numbers["exposed_seconds"], forward + backward + rounding);
            Sums &gathers = trace.transfers_of_unit[{rank, "gather " + model[unit].name}];
            EXPECT_NEAR(gathers.numbers["wait_seconds"],
                        to.gather_wait_seconds - from.gather_wait_seconds, rounding);
            Sums &sums = trace.transfers_of_unit[{rank, "reduce " + model[unit].name}];
            EXPECT_NEAR(sums.numbers["wait_seconds"],
                        to.reduce_wait_seconds - from.reduce_wait_seconds, rounding);
            EXPECT_EQ(sums.numbers["bytes"],
                      static_cast<double>(to.reduce_bytes - from.reduce_bytes));
        }
    }
    // Spans of one row are one after the other, so that a viewer can show them.
    EXPECT_FALSE(trace.rows.empty());
    for (auto &[row, spans] : trace.rows) {
        std::ranges::sort(spans, {}, &Span::begin);
        for (std::size_t i = 1; i < spans.size(); ++i)
            EXPECT_LE(spans[i - 1].end, spans[i].begin + 1) << row.second;
    }
}

INSTANTIATE_TEST_SUITE_P(Presets, EngineTrace, ::testing::ValuesIn(cases()),
                         [](const auto &one) { return one.param.name; });

// Without prefetch each event waits for the gather of its own unit.
TEST(EngineWaits, CountForTheUnitOfTheTransfer) {
    run_ranks(2, [](Communicator &comm) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.order = VESCOMM_FSDP_EXPLICIT;  // no gather is early
        const Described described = describe(odd_model(), "zero3", options);
        Engine engine(described.spec, comm);
        fill(engine);
        constexpr std::uint64_t watched = 2;
        engine.begin(VESCOMM_FSDP_EVAL);
        for (std::uint64_t unit = 0; unit < described.ids.size(); ++unit) {
            const vescomm_fsdp_unit_counters_t before = engine.unit_counters(watched);
            engine.pre_forward(unit);
            engine.post_forward(unit);
            const vescomm_fsdp_unit_counters_t after = engine.unit_counters(watched);
            if (unit != watched) {
                EXPECT_EQ(after.gather_wait_seconds, before.gather_wait_seconds);
            }
        }
        for (std::uint64_t unit = 0; unit < described.ids.size(); ++unit) {
            const vescomm_fsdp_unit_counters_t counters = engine.unit_counters(unit);
            EXPECT_GT(counters.gather_wait_seconds, 0);
            EXPECT_LE(counters.gather_wait_seconds, counters.forward_seconds);
            EXPECT_EQ(counters.reduce_wait_seconds, 0);
        }
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
