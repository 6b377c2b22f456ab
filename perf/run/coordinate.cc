// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/coordinate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "perf/case/collectives.h"
#include "perf/implementations/device_functions.h"
#include "perf/run/hosts.h"
#include "perf/run/implementations.h"
#include "perf/run/interrupt.h"
#include "perf/run/launched_team.h"
#include "perf/run/line_time.h"
#include "perf/run/local_team.h"
#include "perf/run/measure.h"
#include "perf/run/results_json.h"
#include "perf/worker/cores.h"

namespace vescomm::perf {
namespace {

double bandwidth_floor() {
    const char *text = std::getenv("VESCOMM_PERF_MIN_BW");
    if (text == nullptr || *text == 0) return -1;
    double value = 0;
    const char *end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, value);
    if (error != std::errc() || stop != end || !std::isfinite(value) || value < 0)
        throw Failure(ExitCode::usage,
                      fmt::format("VESCOMM_PERF_MIN_BW={} is no number of GB/s", text));
    return value;
}

void print(const std::string &text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    // Flush, because rows show progress.
    if (std::fflush(stdout) != 0)
        throw Failure(ExitCode::internal, "standard output cannot be written");
}

// A temporary progress line on a terminal.
class Progress {
public:
    ~Progress() { clear(); }
    void say(const std::string &text) const {
        if (shown_) fmt::print(stderr, "\r\033[K{}", text);
    }
    void clear() const { say(""); }

private:
    bool shown_ = isatty(STDERR_FILENO) != 0;
};

class Folder {
public:
    Folder() {
        path_ = std::filesystem::temp_directory_path() / "vescomm-perf-XXXXXX";
        if (mkdtemp(path_.data()) == nullptr)
            throw Failure(ExitCode::internal, fmt::format("no folder {} can be made", path_));
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    const std::string &path() const { return path_; }

private:
    std::string path_;
};

Run begin_run(int ranks) {
    Run run;
    run.ranks = ranks;
    run.cores = usable_cores();
    run.started = present_time("%Y-%m-%dT%H:%M:%SZ");
    return run;
}

std::vector<Case> make_checked_cases(const Options &options, int ranks) {
    try {
        return make_cases(options, ranks);
    } catch (const std::invalid_argument &error) {
        throw Failure(ExitCode::usage, error.what());
    }
}

// One for each core, or for each GPU.
int default_ranks(const Options &options) {
    if (!options.on_device) return usable_cores();
    return why_no_devices(1, 1).empty() ? count_devices() : 1;
}

// Workspace for padded shards, which are aligned to 16 bytes; at most four times the buffer,
// because more is no choice.
std::uint64_t padded_bytes(const Case &what) {
    const std::int64_t element = find_type(what.type).bytes();
    const std::int64_t padded = (what.largest_shard() * element + 15) / 16 * 16 * what.ranks();
    return static_cast<std::uint64_t>(std::min(padded, 4 * what.elements() * element + 16));
}

// Returns true if two cases can share column heads.
bool same_heading(const Case &a, const Case &b) {
    return a.collective == b.collective &&
           fmt::format("{:.3f}", a.rho()) == fmt::format("{:.3f}", b.rho());
}

}  // namespace

ExitCode coordinate(const Options &options, const std::vector<Case> &cases,
                    std::vector<std::unique_ptr<Team>> teams, Run run) {
    if (!options.json.empty()) require_writable(options.json);
    const double floor = bandwidth_floor();
    run.nodes = teams.front()->nodes();
    for (const auto &team : teams) run.members.push_back({team->name(), team->version()});
    print(describe(run, options));
    std::vector<Result> results;
    std::string last_distance;
    const Progress progress;
    for (const Case &what : cases) {
        Result result{what, {}, {}};
        int last_round = 0;
        const auto watch = [&](const std::string &name, int round) {
            if (run.knows_cores && std::exchange(last_round, round) != round)
                if (const double ns = measure_line_ns(run.ranks); ns >= 0)
                    result.lines_ns.push_back(ns);
            progress.say(fmt::format("{} {} B, {}: round {} of {}", what.collective, what.bytes(),
                                     name, round, options.rounds));
        };
        result.samples = measure(what, teams, options, watch);
        progress.clear();
        if (results.empty() || !same_heading(results.back().what, what))
            print(column_heads(what, options));
        if (const std::string distance = distance_of(result);
            std::exchange(last_distance, distance) != distance)
            print(distance_line(result));
        print(rows_of(result, options));
        results.push_back(std::move(result));
    }
    const Summary summary = summarise(results, floor);
    print(footer_of(results, summary));
    if (!options.json.empty()) replace_file(options.json, to_json(run, options, results, summary));
    if (summary.wrong > 0 || summary.below_floor()) return ExitCode::results;
    const auto any = [&](auto &&holds) {
        return std::ranges::any_of(results, [&](const Result &result) {
            return std::ranges::any_of(result.samples, holds);
        });
    };
    if (any([](const Samples &samples) { return samples.failed; })) return ExitCode::failed;
    const bool measured = any([](const Samples &samples) { return samples.unsupported.empty(); });
    return measured ? ExitCode::success : ExitCode::not_implemented;
}

ExitCode coordinate_here(const Options &options) {
    catch_interrupts();
    const int ranks = options.ranks > 0 ? options.ranks : default_ranks(options);
    const std::vector<Case> cases = make_checked_cases(options, ranks);
    Run run = begin_run(ranks);
    run.knows_cores = options.bind == "core" && !options.on_device;
    // Declared in this order so that the teams are destroyed before their hosts.
    std::optional<Hosts> hosts;
    std::optional<Folder> folder(std::in_place);
    std::vector<std::unique_ptr<Team>> teams;
    if (options.hosts > 1) hosts.emplace(options.hosts, options.link_gbits);
    LocalSetting setting{.folder = folder->path(),
                         .ranks = ranks,
                         .largest_bytes = 0,
                         .timeout_seconds = options.timeout_seconds,
                         .bind = options.bind == "core" && !options.on_device,
                         .threads = options.threads,
                         .padded_bytes = 0,
                         .shares_devices = false,
                         .hosts = hosts ? &*hosts : nullptr};
    for (const Case &what : cases) {
        setting.largest_bytes = std::max(setting.largest_bytes, bytes_with_input(what));
        setting.padded_bytes = std::max(setting.padded_bytes, padded_bytes(what));
    }
    for (const std::string &name : options.implementations) {
        const ImplementationRow &row = find_implementation(name, options.on_device);
        std::string reason = why_not(row, ranks, options);
        try {
            setting.shares_devices = row.on_device && reason.empty() && ranks > count_devices();
            if (reason.empty()) teams.push_back(std::make_unique<LocalTeam>(row, setting));
        } catch (const Failure &failure) {
            // If another library does not start, the remaining ones are still measured.
            if (&name == &options.implementations.front()) throw;
            reason = failure.what();
        }
        if (!reason.empty()) run.left_out.push_back({name, reason});
        check_interrupt();
    }
    folder.reset();
    if (teams.empty())
        throw Failure(ExitCode::not_implemented,
                      fmt::format("no implementation is left to measure: {}: {}",
                                  run.left_out.front().name, run.left_out.front().text));
    return coordinate(options, cases, std::move(teams), std::move(run));
}

ExitCode take_part(const Options &options) {
    if (options.on_device)
        throw Failure(ExitCode::usage,
                      "--memory device: under a launcher only host memory is measured; give "
                      "--ranks");
    if (options.implementations != std::vector<std::string>{"vescomm"})
        throw Failure(ExitCode::usage,
                      "--impl: under a launcher only vescomm is measured; others need --ranks");
    Communicator comm = Communicator::from_environment();
    const std::vector<Case> cases = make_checked_cases(options, comm.ranks());
    auto team = std::make_unique<LaunchedTeam>(comm);
    if (comm.rank() != 0) {
        team->follow();
        return ExitCode::success;
    }
    std::vector<std::unique_ptr<Team>> teams;
    teams.push_back(std::move(team));
    return coordinate(options, cases, std::move(teams), begin_run(comm.ranks()));
}

}  // namespace vescomm::perf
