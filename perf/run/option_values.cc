// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace vescomm::perf {
namespace {

[[noreturn]] void refuse(const std::string &sentence) {
    throw std::invalid_argument(sentence);
}

}  // namespace

std::int64_t parse_size(std::string_view text, std::string_view option) {
    const std::string whole(text);
    char *end = nullptr;
    double value = std::strtod(whole.c_str(), &end);
    std::string unit(end);
    if (unit.ends_with("iB")) unit.resize(unit.size() - 2);
    else if (unit == "B") unit.clear();
    const double factor = unit.empty()                 ? 1
                          : unit == "K" || unit == "k" ? 1024.0
                          : unit == "M" || unit == "m" ? 1024.0 * 1024
                          : unit == "G" || unit == "g" ? 1024.0 * 1024 * 1024
                                                       : -1;
    value = std::floor(value * factor);
    if (end == whole.c_str() || factor < 0 || !(value >= 0 && value <= 1e15))
        refuse(fmt::format("{} \"{}\": give bytes, such as 65536, 64K or 2G", option, text));
    return static_cast<std::int64_t>(value);
}

std::vector<std::int64_t> make_sizes(const std::string &min_bytes, const std::string &max_bytes,
                                     const std::string &step_bytes, double factor) {
    const std::int64_t min = parse_size(min_bytes, "--minbytes");
    const std::int64_t max = max_bytes.empty() ? min : parse_size(max_bytes, "--maxbytes");
    if (min > max) refuse(fmt::format("--minbytes {} is more than --maxbytes {}", min, max));
    if (factor != 0 && !(factor > 1))
        refuse(fmt::format("--stepfactor {}: give more than 1", factor));
    if (factor != 0 && !step_bytes.empty())
        refuse("--stepbytes and --stepfactor exclude each other; give one of them");
    const std::int64_t step = step_bytes.empty() ? 1 << 20 : parse_size(step_bytes, "--stepbytes");
    if (step < 1) refuse("--stepbytes 0 never comes to an end");
    std::vector<std::int64_t> sizes;
    for (std::int64_t size = min; size <= max;) {
        sizes.push_back(size);
        if (sizes.size() > 100'000) refuse("there are more than 100,000 sizes; take larger steps");
        const auto times = static_cast<std::int64_t>(static_cast<double>(size) * factor);
        size = factor == 0 ? size + step : std::max(times, size + 1);
    }
    return sizes;
}

void parse_skew(const std::string &text, Options &options) {
    const std::size_t colon = text.find(':');
    char *end = nullptr;
    const std::string time = text.substr(0, colon);
    options.skew_us = std::strtod(time.c_str(), &end);
    if (time.empty() || *end != 0 || !(options.skew_us >= 0 && options.skew_us <= 1e9))
        refuse(fmt::format("--skew {}: give microseconds, and a rank after a colon", text));
    options.late_rank = -1;
    if (colon == std::string::npos) return;
    const std::string rank = text.substr(colon + 1);
    options.late_rank = static_cast<int>(std::strtol(rank.c_str(), &end, 10));
    if (rank.empty() || *end != 0 || options.late_rank < 0)
        refuse(fmt::format("--skew {}: \"{}\" is no rank", text, rank));
}

}  // namespace vescomm::perf
