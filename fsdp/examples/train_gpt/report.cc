// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "fsdp/examples/train_gpt/step_times.h"

namespace train_gpt {

namespace {

constexpr int lines_of_progress = 20;

std::string mebibytes(double bytes) {
    return fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

// Formats a number with commas: 1,234,567.
std::string grouped(std::uint64_t number) {
    std::string digits = std::to_string(number);
    for (auto place = static_cast<std::ptrdiff_t>(digits.size()) - 3; place > 0; place -= 3)
        digits.insert(static_cast<std::size_t>(place), ",");
    return digits;
}

std::string counted(std::int64_t number, const char *thing) {
    return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

// Returns the seconds of all steps except the first, which prepares kernels and touches memory for
// the first time.
std::vector<double> steady_seconds(const std::vector<StepResult> &steps) {
    std::vector<double> seconds;
    for (std::size_t step = steps.size() > 1 ? 1 : 0; step < steps.size(); ++step)
        seconds.push_back(steps[step].seconds);
    return seconds;
}

}  // namespace

void Results::predict(const vescomm::fsdp::Spec &spec, const vescomm::Communicator &comm,
                      const std::vector<std::int32_t> &nodes, int micro_batches) {
    largest = spec.report_on(nodes, -1, micro_batches, &comm);
    mine = spec.report_on(nodes, comm.rank(), micro_batches, &comm);
}

double Results::median_seconds() const {
    std::vector<double> seconds = steady_seconds(steps);
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
}

double Results::min_seconds() const {
    const std::vector<double> seconds = steady_seconds(steps);
    return *std::min_element(seconds.begin(), seconds.end());
}

double Results::tokens_per_second(const Options &options) const {
    const std::vector<double> seconds = steady_seconds(steps);
    const double tokens = static_cast<double>(options.batch) * options.shape.context;
    return tokens * static_cast<double>(seconds.size()) /
           std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::string header_text(const Options &options, const TextData &text, const Results &results) {
    const Shape &shape = options.shape;
    const vescomm_fsdp_report_t &engine = results.largest;
    const auto row = [](const char *name, const std::string &value) {
        return fmt::format("  {:<12}{}\n", name, value);
    };
    const std::string rows_together =
        options.block_rows < 0
            ? "whole matrices"
            : fmt::format("matrices in blocks of {}", counted(options.block_rows, "row"));
    return "train_gpt: a byte-level GPT, sharded by vescomm\n" +
           row("model",
               fmt::format("{}, dim {}, {}, context {}: {} parameters in {}",
                           counted(shape.layers, "layer"), shape.dim, counted(shape.heads, "head"),
                           shape.context, grouped(static_cast<std::uint64_t>(engine.parameters)),
                           counted(shape.units(), "unit"))) +
           row("ranks", fmt::format("{} on {}, {}", results.comm.ranks,
                                    counted(results.comm.nodes, "node"), options.preset)) +
           row("shards", fmt::format("{}, {}: at most {} parameters ({:.1f} %) on a rank, {} of "
                                     "padding",
                                     options.uniform ? "uniform" : "ragged", rows_together,
                                     grouped(static_cast<std::uint64_t>(engine.shard_elements)),
                                     100.0 * static_cast<double>(engine.shard_elements) /
                                         static_cast<double>(engine.parameters),
                                     grouped(static_cast<std::uint64_t>(engine.padding)))) +
           row("slots",
               fmt::format("{} for gathered parameters ({} once for a node), {} for "
                           "gradients ({} for a rank), {}",
                           options.slots, mebibytes(static_cast<double>(engine.slot_bytes)),
                           options.gradient_slots,
                           mebibytes(static_cast<double>(engine.gradient_slot_bytes)),
                           name_of(options.precision))) +
           row("text",
               fmt::format("{}, {}", mebibytes(static_cast<double>(text.size())), text.source())) +
           row("held out",
               fmt::format("the last {}, of which {} are tried",
                           mebibytes(static_cast<double>(text.size() - text.held_out_begin())),
                           counted(text.held_out_sequences(), "sequence"))) +
           row("training",
               fmt::format("{} of {} of {} bytes, learning rate {:g}, seed {}\n",
                           counted(options.steps, "step"), counted(options.batch, "sequence"),
                           shape.context, options.learning_rate, options.seed));
}

std::string memory_text(const Options &options, const Results &results) {
    const Holdings rank = MemoryUse::largest(results.memory.ranks);
    const Holdings node = MemoryUse::largest(results.memory.nodes);
    std::string text;
    const auto row = [&](const std::string &name, const std::string &of_rank,
                         const std::string &of_node) {
        text += fmt::format("  {:<44}{:>14}{:>14}\n", name, of_rank, of_node);
    };
    const auto bytes = [&](const std::string &name, double of_rank, double of_node) {
        row(name, mebibytes(of_rank), mebibytes(of_node));
    };
    text += fmt::format("{:<46}{:>14}{:>14}\n", "memory, of the largest", "rank", "node");
    bytes(fmt::format("parameters: {} shards", name_of(options.master_type)), rank.shards,
          node.shards);
    row("parameters: gathered slots, one for the node", "", mebibytes(node.slabs));
    bytes("gradients: f32 shards", rank.gradients - rank.gradient_slots,
          node.gradients - node.gradient_slots);
    bytes("gradients: slots", rank.gradient_slots, node.gradient_slots);
    bytes("optimizer: two f32 moments, shards", rank.optimizer, node.optimizer);
    bytes("together", rank.together(), node.together());
    bytes("replicated (DDP) they would take", rank.replicated, node.replicated);
    row("that is", fmt::format("{:.1f} times", rank.saved()),
        fmt::format("{:.1f} times", node.saved()));
    bytes("activations, not sharded, at most", rank.activations, node.activations);
    row("measured: peak resident set", mebibytes(rank.process.peak), "");
    bytes("measured: proportional set size (PSS)", rank.process.proportional,
          node.process.proportional);
    return text;
}

std::string summary_text(const Options &options, const Results &results, double seconds) {
    return fmt::format(
        "{} in {:.0f} s: loss {:.3f} -> {:.3f}, held out {:.3f} -> {:.3f} nats a byte\n"
        "step {:.0f} ms (median, least {:.0f}), {:.0f} tokens/s, communication {:.1f} ms a step, "
        "exposed {:.1f} ms (mean over ranks)\n",
        counted(options.steps, "step"), seconds, results.steps.front().loss,
        results.steps.back().loss, results.held_out.front().second, results.held_out.back().second,
        results.median_seconds() * 1e3, results.min_seconds() * 1e3,
        results.tokens_per_second(options), results.communication_seconds * 1e3,
        results.exposed_seconds * 1e3);
}

namespace {

nlohmann::ordered_json predicted_json(const vescomm_fsdp_report_t &report) {
    return {{"persistent", report.persistent_bytes},
            {"slots", report.slot_bytes},
            {"gradient_slots", report.gradient_slot_bytes},
            {"scratch", report.scratch_bytes},
            {"codes", report.code_bytes},
            {"widened", report.widened_bytes},
            {"secondary", report.secondary_bytes},
            {"peak", report.peak_bytes},
            {"forward", report.forward_bytes},
            {"backward", report.backward_bytes},
            {"step", report.step_bytes},
            {"partner", report.partner_bytes},
            {"partial_sums", report.partial_sum_bytes},
            {"file", report.file_bytes},
            {"gathers_per_step", report.gathers_per_step},
            {"gather_bytes_per_step", report.gather_bytes_per_step},
            {"group_gather_bytes_per_step", report.group_gather_bytes_per_step},
            {"reduce_bytes_per_step", report.reduce_bytes_per_step},
            {"replica_bytes_per_step", report.replica_bytes_per_step}};
}

// Returns the last step that directly follows another one; nullptr: there is none. The gathers of
// an evaluation between two steps take the place of those that the first of them has started early,
// which the second one then starts again. The first step of a run has no early gathers.
const StepResult *steady_step(const std::vector<StepResult> &steps) {
    for (std::size_t i = steps.size(); i-- > 1;)
        if (steps[i].before.gathers == steps[i - 1].after.gathers) return &steps[i];
    return nullptr;
}

// The members of predicted_json() that the engine counts. Those of gathers are null without a
// steady step.
nlohmann::ordered_json measured_json(const std::vector<StepResult> &steps) {
    using Counters = vescomm_fsdp_counters_t;
    const auto difference = [](const StepResult &step, std::uint64_t Counters::*counter) {
        return step.after.*counter - step.before.*counter;
    };
    const StepResult *steady = steady_step(steps);
    const auto gathered = [&](std::uint64_t Counters::*counter) -> nlohmann::ordered_json {
        if (steady == nullptr) return nullptr;
        return difference(*steady, counter);
    };
    const StepResult &last = steady != nullptr ? *steady : steps.back();
    return {{"peak", last.after.allocated_bytes},
            {"gathers_per_step", gathered(&Counters::gathers)},
            {"gather_bytes_per_step", gathered(&Counters::gather_bytes)},
            {"group_gather_bytes_per_step", gathered(&Counters::group_gather_bytes)},
            {"reduce_bytes_per_step", difference(last, &Counters::reduce_bytes)},
            {"replica_bytes_per_step", difference(last, &Counters::replica_bytes)},
            {"deviations", last.after.deviations}};
}

nlohmann::ordered_json json_of(const StepTimes &times) {
    return {{"steps", times.steps},
            {"step_ms", times.step},
            {"program_ms", times.program},
            {"gather_ms", times.gather},
            {"reduce_ms", times.reduce},
            {"agree_ms", times.agree},
            {"norm_ms", times.norm},
            {"update_ms", times.update},
            {"gathers", times.gathers},
            {"early_gathers", times.early_gathers},
            {"gather_bytes", times.gather_bytes},
            {"reduce_bytes", times.reduce_bytes},
            {"replica_bytes", times.replica_bytes}};
}

}  // namespace

std::string json_text(const Options &options, const TextData &text, const Results &results) {
    using nlohmann::ordered_json;
    const Shape &shape = options.shape;
    const auto whole = [](double number) { return static_cast<std::uint64_t>(number); };
    const Holdings rank = MemoryUse::largest(results.memory.ranks);
    const Holdings node = MemoryUse::largest(results.memory.nodes);
    ordered_json losses = ordered_json::array();
    ordered_json norms = ordered_json::array();
    ordered_json scales = ordered_json::array();
    for (const StepResult &step : results.steps) {
        losses.push_back(step.loss);
        norms.push_back(step.norm);
        scales.push_back(step.loss_scale);
    }
    ordered_json held_out = ordered_json::array();
    for (const auto &[step, loss] : results.held_out) held_out.push_back({step, loss});
    ordered_json recoveries = ordered_json::array();
    for (const Recovery &one : results.recoveries)
        recoveries.push_back({{"step", one.step},
                              {"ranks", one.ranks},
                              {"ms", one.seconds * 1e3},
                              {"from", one.from}});
    ordered_json shards = ordered_json::array();
    for (const Holdings &one : results.memory.ranks) shards.push_back(whole(one.shards));

    const ordered_json document = {
        {"schema", "train-gpt/1"},
        {"ranks", results.comm.ranks},
        {"nodes", results.comm.nodes},
        {"parameters", results.largest.parameters},
        {"dtype", name_of(options.precision)},
        {"master_dtype", name_of(options.master_type)},
        {"rounding", options.master_type == Precision::f32 ? "none" : options.rounding},
        {"gather_dtype",
         options.gather_type.empty() ? name_of(options.precision) : options.gather_type},
        {"reduce_dtype",
         options.reduce_type.empty() ? name_of(options.precision) : options.reduce_type},
        {"batch", options.batch},
        {"context", shape.context},
        {"layers", shape.layers},
        {"dim", shape.dim},
        {"heads", shape.heads},
        {"steps", options.steps},
        {"seed", options.seed},
        {"learning_rate", options.learning_rate},
        {"preset", options.preset},
        {"accumulate", options.accumulate},
        {"order", options.order},
        {"reshard", options.reshard},
        {"reshard_ranks", options.reshard_ranks},
        {"recompute", options.recompute},
        {"clip", options.clip},
        {"slots", options.slots},
        {"gradient_slots", options.gradient_slots},
        {"uniform", options.uniform},
        {"block_rows", options.block_rows},
        {"report", predicted_json(results.mine)},
        {"measured", measured_json(results.steps)},
        {"summary", json_of(step_times(results.steps))},
        {"data", {{"source", text.source()}, {"bytes", text.size()}}},
        {"step_ms",
         {{"p50", results.median_seconds() * 1e3}, {"min", results.min_seconds() * 1e3}}},
        {"tokens_per_second", results.tokens_per_second(options)},
        {"exposed_communication_ms", results.exposed_seconds * 1e3},
        {"communication_ms", results.communication_seconds * 1e3},
        {"loss", losses},
        {"heldout_loss", results.held_out.back().second},
        {"heldout_curve", held_out},
        {"gradient_norm", norms},
        {"loss_scale", scales},
        {"skipped_steps", results.steps.back().after.skipped},
        {"recoveries", results.recoveries.size()},
        {"recovery", recoveries},
        {"memory",
         {{"shards", whole(rank.shards)},
          {"slabs", whole(node.slabs)},
          {"gradients", whole(rank.gradients)},
          {"gradient_slots", whole(rank.gradient_slots)},
          {"optimizer", whole(rank.optimizer)},
          {"peak_rank", whole(rank.process.peak)},
          {"node_pss", whole(node.process.proportional)},
          {"node_pss_before", whole(node.process.before)},
          {"replicated", whole(rank.replicated)},
          {"activations", whole(rank.activations)},
          {"shards_by_rank", shards}}},
    };
    // Names of files may contain any bytes.
    return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string recovery_text(const Recovery &recovery) {
    return fmt::format("ranks died; {} go on after step {}, from {}, {:.2f} s after the error\n",
                       recovery.ranks, recovery.step, recovery.from, recovery.seconds);
}

void Results::return_to(int step) {
    const int kept = std::max(step - first_step, 0);
    if (steps.size() > static_cast<std::size_t>(kept)) steps.resize(static_cast<std::size_t>(kept));
    std::erase_if(held_out, [&](const auto &one) { return one.first > step; });
}

std::string printable(const std::string &text) {
    std::string printed;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '\n' || c == '\t' || (byte >= ' ' && byte <= '~')) {
            printed += c;
        } else {
            printed += fmt::format("\\x{:02x}", byte);
        }
    }
    return printed;
}

Progress::Progress(const Options &options, bool quiet)
    : options_(options),
      quiet_(quiet),
      terminal_(isatty(STDOUT_FILENO) == 1),
      every_(std::max(1, options.steps / lines_of_progress)) {
    print(fmt::format("{:>7}{:>9}{:>12}{:>10}{:>11}{:>15}{:>12}\n", "step", "loss", "held out",
                      "step ms", "tokens/s", "communic. ms", "exposed ms"),
          true);
}

// Leaves the cursor at the start of a new line.
Progress::~Progress() {
    try {
        print("", true);
    } catch (...) {
        // The terminal is gone; there is nothing to tidy.
    }
}

void Progress::step(int step, const StepResult &result) {
    ++steps_;
    sum_.loss += result.loss;
    sum_.seconds += result.seconds;
    sum_.communication_seconds += result.communication_seconds;
    sum_.exposed_seconds += result.exposed_seconds;
    const bool stays = (step + 1) % every_ == 0 || step + 1 == options_.steps;
    if (!stays && !terminal_) return;
    print(line(step), stays);
    if (!stays) return;
    steps_ = 0;
    sum_ = {};
}

void Progress::held_out(int steps, double loss) {
    print(fmt::format("{:>7}{:>9}{:>12.4f}\n", steps, "", loss), true);
}

std::string Progress::line(int step) const {
    const double tokens = static_cast<double>(options_.batch) * options_.shape.context;
    return fmt::format("{:>7}{:>9.4f}{:>12}{:>10.1f}{:>11.0f}{:>15.1f}{:>12.1f}\n", step + 1,
                       sum_.loss / steps_, "", sum_.seconds / steps_ * 1e3,
                       tokens * steps_ / sum_.seconds, sum_.communication_seconds / steps_ * 1e3,
                       sum_.exposed_seconds / steps_ * 1e3);
}

// Prints a line. A line that does not stay is overwritten by the next one.
void Progress::print(const std::string &text, bool stays) {
    if (quiet_) return;
    const char *clear = terminal_ ? "\r\x1b[K" : "";
    fmt::print("{}{}", clear, stays ? text : text.substr(0, text.size() - 1));
    std::fflush(stdout);
}

}  // namespace train_gpt
