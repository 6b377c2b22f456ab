// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/results_json.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "perf/run/exit_codes.h"
#include "vescomm/vescomm.h"

namespace vescomm::perf {
namespace {

using json = nlohmann::ordered_json;

std::string to_line(const json &value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json number_or_null(double value) {
    return value < 0 ? json(nullptr) : json(value);
}

// Returns the variables that may affect results. Other variables and the secret of a job are
// omitted, because they may be confidential.
json environment() {
    json result = json::object();
    for (char **entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::string name(text.substr(0, text.find('=')));
        const bool counts = std::ranges::any_of(
            std::initializer_list<std::string_view>{"VESCOMM_", "UCX_", "UCC_", "OMPI_MCA_",
                                                    "NCCL_", "CUDA_"},
            [&](std::string_view prefix) { return name.starts_with(prefix); });
        if (!counts || name.find("SECRET") != std::string::npos) continue;
        result[name] = text.size() > name.size() ? text.substr(name.size() + 1) : "";
    }
    return result;
}

json overlap(const Samples &samples) {
    if (samples.overlaps.empty()) return nullptr;
    const OverlapFigures figures = overlap_of(samples);
    return {{"compute_us", figures.compute_us},
            {"total_us", figures.total_us},
            {"hidden_percent", figures.hidden_percent}};
}

json line_of(const Result &result) {
    if (result.lines_ns.empty()) return nullptr;
    const auto [least, most] = std::ranges::minmax(result.lines_ns);
    return {{"min", least}, {"max", most}};
}

json members_of(const std::vector<Run::Member> &members, const char *text) {
    json result = json::array();
    for (const Run::Member &member : members)
        result.push_back({{"impl", member.name}, {text, member.text}});
    return result;
}

json to_json(const Run &run, const Options &options, const Result &result, const Samples &samples) {
    const Case &what = result.what;
    const Figures figures = figures_of(samples);
    std::size_t iterations = 0;
    for (const auto &round : samples.rounds_us) iterations += round.size();
    std::int64_t smallest = what.elements();
    for (int rank = 0; rank < what.ranks(); ++rank) smallest = std::min(smallest, what.shard(rank));
    const std::int64_t element = find_type(what.type).bytes();
    return {
        {"collective", what.collective},
        {"impl", samples.implementation},
        {"bytes", what.bytes()},
        {"count", what.elements()},
        {"type", what.type},
        {"output_type", what.output_type},
        {"op", what.op},
        {"root", what.root},
        {"ranks", run.ranks},
        {"nodes", run.nodes},
        {"shared", what.shared},
        {"memory", what.on_device ? "device" : "host"},
        {"place", what.in_place ? "in" : "out"},
        {"ragged", options.ragged},
        {"rho", what.rho()},
        {"shard_bytes", {{"min", smallest * element}, {"max", what.largest_shard() * element}}},
        {"block", what.block},
        {"tensors", options.tensors},
        {"skew_us", options.skew_us},
        {"sources", options.keep_sources ? "kept" : "new"},
        {"line_ns", line_of(result)},
        {"iterations", iterations},
        {"time_us",
         {{"min", figures.min}, {"p50", figures.p50}, {"p99", figures.p99}, {"max", figures.max}}},
        {"algbw", algbw(what, figures.p50)},
        {"busbw", busbw(what, figures.p50)},
        {"wrong", samples.wrong < 0 ? json(nullptr) : json(samples.wrong)},
        {"ratio", number_or_null(samples.ratio)},
        {"register_us", number_or_null(samples.costs.register_us)},
        {"create_us", number_or_null(samples.costs.create_us)},
        {"algorithm", samples.costs.algorithm},
        {"predicted_us", number_or_null(samples.costs.predicted_us)},
        {"start_us", number_or_null(samples.start_us)},
        {"overlap", overlap(samples)}};
}

}  // namespace

std::string to_json(const Run &run, const Options &options, const std::vector<Result> &results,
                    const Summary &summary) {
    std::string text = fmt::format(
        "{{\"schema\": \"vescomm-perf/1\",\n\"version\": {},\n\"started\": {},\n\"arguments\": "
        "{},\n\"environment\": {},\n\"cores\": {},\n\"implementations\": {},\n\"left_out\": "
        "{},\n\"results\": [",
        to_line(vescomm_get_version()), to_line(run.started), to_line(options.arguments),
        to_line(environment()), run.cores, to_line(members_of(run.members, "version")),
        to_line(members_of(run.left_out, "reason")));
    const char *separator = "\n";
    for (const Result &result : results)
        for (const Samples &samples : result.samples) {
            if (!samples.unsupported.empty()) continue;
            text += separator + to_line(to_json(run, options, result, samples));
            separator = ",\n";
        }
    return text + fmt::format("],\n\"out_of_bounds\": {},\n\"average_bus_bandwidth\": {}}}\n",
                              summary.wrong, to_line(summary.average_busbw));
}

namespace {

// A device or a pipe is written to. Another file in its place would take it from everybody.
bool is_written_in_place(const std::string &path) {
    std::error_code error;
    return std::filesystem::is_other(std::filesystem::status(path, error));
}

std::string fresh_file(const std::string &path) {
    return path + ".new." + std::to_string(getpid());
}

[[noreturn]] void refuse_file(const std::string &path) {
    throw Failure(ExitCode::internal, fmt::format("--json {}: it cannot be written", path));
}

}  // namespace

void require_writable(const std::string &path) {
    if (is_written_in_place(path)) return;
    std::error_code error;
    const std::string fresh = fresh_file(path);
    const bool opened =
        !std::filesystem::is_directory(path, error) && std::ofstream(fresh).is_open();
    unlink(fresh.c_str());
    if (!opened) refuse_file(path);
}

void replace_file(const std::string &path, const std::string &text) {
    const bool in_place = is_written_in_place(path);
    const std::string fresh = in_place ? path : fresh_file(path);
    std::ofstream file(fresh, std::ios::binary);
    file << text;
    file.close();
    if (file && (in_place || std::rename(fresh.c_str(), path.c_str()) == 0)) return;
    if (!in_place) unlink(fresh.c_str());
    refuse_file(path);
}

}  // namespace vescomm::perf
