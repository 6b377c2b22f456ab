// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <map>

#include "perf/run/line_time.h"

namespace vescomm::perf {
namespace {

// Formats times and bandwidths as nccl-tests does.
std::string number(double value) {
    if (value < 0) return "-";
    const int digits = value < 10 ? 2 : value < 1000 ? 1 : 0;
    return fmt::format("{:.{}f}", value, digits);
}

// Formats a time. Small times get more digits.
std::string time(double us) {
    return us >= 0 && us < 10 ? fmt::format("{:.3f}", us) : number(us);
}

// Prefixes every line of a text with '#'.
std::string comment(const std::string &text) {
    std::string lines = "# ";
    for (const char c : text) lines += c == '\n' ? "\n#   " : std::string(1, c);
    return lines + "\n";
}

bool compares(const Options &options) {
    return options.implementations.size() > 1;
}

std::size_t name_width(const Options &options) {
    std::size_t width = 9;
    for (const std::string &name : options.implementations) width = std::max(width, name.size());
    return width;
}

std::string row_of(const Case &what, const Samples &samples, const Options &options) {
    const Figures figures = figures_of(samples);
    std::string row =
        fmt::format("{:12} {:12} {:>8} {:>6} {:>6}  {:>8} {:>7} {:>7} {:>6}  {:>8} {:>8}",
                    what.bytes(), what.elements(), what.type, what.op, what.root, time(figures.p50),
                    number(algbw(what, figures.p50)), number(busbw(what, figures.p50)),
                    samples.wrong < 0 ? "N/A" : std::to_string(samples.wrong), time(figures.min),
                    time(figures.p99));
    if (options.statistics)
        row += fmt::format("  {:>8} {:>6.1f}", time(figures.max), 100 * figures.variation);
    if (options.costs)
        row += fmt::format("  {:>8} {:>8} {:>8}", time(samples.costs.register_us),
                           time(samples.costs.create_us), time(samples.start_us));
    if (options.overlap) {
        const OverlapFigures overlap = overlap_of(samples);
        row += fmt::format("  {:>8} {:>8} {:>7.0f}", time(overlap.compute_us),
                           time(overlap.total_us), overlap.hidden_percent);
    }
    if (what.on_device) row += fmt::format("  {:5}", what.in_place ? "in" : "out");
    row += fmt::format("  {:{}}", samples.implementation, name_width(options));
    if (compares(options)) row += fmt::format("{:>6}", number(samples.ratio));
    if (options.timestamps) row += "  " + present_time("%Y-%m-%d %H:%M:%S");
    return row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string present_time(const char *format) {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 64> text{};
    return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

Summary summarise(const std::vector<Result> &results, double floor) {
    Summary summary;
    summary.floor = floor;
    int sizes = 0;
    for (const Result &result : results) {
        for (const Samples &samples : result.samples)
            summary.wrong += std::max<std::int64_t>(samples.wrong, 0);
        if (result.samples.empty() || !result.samples.front().unsupported.empty()) continue;
        summary.average_busbw += busbw(result.what, figures_of(result.samples.front()).p50);
        ++sizes;
    }
    if (sizes > 0) summary.average_busbw /= sizes;
    return summary;
}

std::string describe(const Run &run, const Options &options) {
    std::string text =
        fmt::format("# vescomm_perf: {} rank{} on {} node{}, {} core{}, {}\n", run.ranks,
                    run.ranks == 1 ? "" : "s", run.nodes, run.nodes == 1 ? "" : "s", run.cores,
                    run.cores == 1 ? "" : "s", run.started);
    for (const Run::Member &member : run.members)
        text += fmt::format("# {}: {}\n", member.name, member.text);
    for (const Run::Member &member : run.left_out)
        text += comment(fmt::format("{} is left out: {}", member.name, member.text));
    if (options.on_device)
        text += "# on the memory of GPUs, times include the wait for the stream\n";
    text += fmt::format("# shards {}", options.ragged);
    if (options.block > 1) text += fmt::format(", blocks of {} elements", options.block);
    if (options.tensors > 1) text += fmt::format(", {} tensors", options.tensors);
    if (options.keep_sources) text += ", sources kept";
    if (options.skew_us > 0)
        text += fmt::format(
            ", {} comes {} us late",
            options.late_rank < 0 ? "the last rank" : fmt::format("rank {}", options.late_rank),
            options.skew_us);
    constexpr const char *averages[] = {"on rank 0", "of the mean of all ranks",
                                        "of the fastest rank", "of the slowest rank"};
    return text + fmt::format("; times are medians {}, of {} rounds in turns\n",
                              averages[static_cast<int>(options.average)], options.rounds);
}

std::string column_heads(const Case &what, const Options &options) {
    std::string text = fmt::format("#\n# {}{}: rho {:.3f}\n", what.collective,
                                   what.shared ? ", one result for each node" : "", what.rho());
    std::string heads = fmt::format(
        "#{:>11} {:>12} {:>8} {:>6} {:>6}  {:>8} {:>7} {:>7} {:>6}  {:>8} {:>8}", "size", "count",
        "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "min", "p99");
    std::string units =
        fmt::format("#{:>11} {:>12} {:>8} {:>6} {:>6}  {:>8} {:>7} {:>7} {:>6}  {:>8} {:>8}", "(B)",
                    "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)");
    if (options.statistics) {
        heads += fmt::format("  {:>8} {:>6}", "max", "cv");
        units += fmt::format("  {:>8} {:>6}", "(us)", "(%)");
    }
    if (options.costs) {
        heads += fmt::format("  {:>8} {:>8} {:>8}", "register", "create", "start");
        units += fmt::format("  {:>8} {:>8} {:>8}", "(us)", "(us)", "(us)");
    }
    if (options.overlap) {
        heads += fmt::format("  {:>8} {:>8} {:>7}", "compute", "total", "hidden");
        units += fmt::format("  {:>8} {:>8} {:>7}", "(us)", "(us)", "(%)");
    }
    if (what.on_device) {
        heads += "  place";
        units += "       ";
    }
    heads += fmt::format("  {:{}}", "impl", name_width(options));
    units += fmt::format("  {:{}}", "", name_width(options));
    if (compares(options)) {
        heads += fmt::format("{:>6}", "ratio");
        units += fmt::format("{:>6}", "");
    }
    const auto trim = [](const std::string &line) {
        return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    };
    return text + trim(heads) + trim(units);
}

std::string distance_of(const Result &result) {
    if (result.lines_ns.empty()) return "";
    const auto [least, most] = std::ranges::minmax(result.lines_ns);
    if (most < near_line_ns) return "near";
    return least < near_line_ns ? "near and far" : "far";
}

std::string distance_line(const Result &result) {
    if (result.lines_ns.empty()) return "";
    return fmt::format("# cores {}: a cache line takes {:.0f} ns\n", distance_of(result),
                       median(result.lines_ns));
}

std::string rows_of(const Result &result, const Options &options) {
    std::string text;
    for (const Samples &samples : result.samples) {
        if (samples.unsupported.empty()) text += row_of(result.what, samples, options);
        else
            text +=
                comment(fmt::format("{} is left out {}: {}", samples.implementation,
                                    samples.failed ? "from here on" : "here", samples.unsupported));
        if (!samples.first_wrong.empty())
            text += comment(fmt::format("{}, {}", samples.implementation, samples.first_wrong));
    }
    return text;
}

std::string footer_of(const std::vector<Result> &results, const Summary &summary) {
    std::string text = fmt::format("#\n# Out of bounds values : {} {}\n", summary.wrong,
                                   summary.wrong == 0 ? "OK" : "FAILED");
    text += fmt::format("# Avg bus bandwidth    : {:g}{}\n", summary.average_busbw,
                        summary.floor < 0       ? ""
                        : summary.below_floor() ? " FAILED"
                                                : " OK");
    std::map<std::string, std::pair<double, int>> logarithms;
    std::vector<std::string> order;
    for (const Result &result : results)
        for (std::size_t i = 1; i < result.samples.size(); ++i) {
            const Samples &samples = result.samples[i];
            if (samples.ratio <= 0) continue;
            if (!logarithms.contains(samples.implementation))
                order.push_back(samples.implementation);
            auto &[sum, count] = logarithms[samples.implementation];
            sum += std::log(samples.ratio);
            ++count;
        }
    for (const std::string &name : order)
        text += fmt::format("# {:20} : {:.2f} times the time of {} (geometric mean)\n", name,
                            std::exp(logarithms[name].first / logarithms[name].second),
                            results.front().samples.front().implementation);
    return text + "#\n";
}

}  // namespace vescomm::perf
