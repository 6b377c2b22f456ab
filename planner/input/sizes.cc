// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/input/sizes.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "planner/input/input.h"
#include "planner/input/strict_json.h"

namespace vescomm::planner {
namespace {

constexpr std::size_t most_weights = 10'000'000;

struct Suffix {
    std::string_view name;
    double factor;
};

constexpr Suffix suffixes[] = {
    {"", 1},
    {"B", 1},
    {"KiB", 1024.0},
    {"MiB", 1024.0 * 1024},
    {"GiB", 1024.0 * 1024 * 1024},
    {"TiB", 1024.0 * 1024 * 1024 * 1024},
    {"kB", 1e3},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
};

bool read_whole(std::string_view text, std::int64_t &value) {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failure == std::errc() && end == text.data() + text.size();
}

std::string scaled(double value, double base, const char *const *names, int count) {
    int i = 0;
    for (; i + 1 < count && std::abs(value) >= base; ++i) value /= base;
    // Four digits, and none after the point of what is counted one by one.
    const int digits = i == 0 ? 0 : value < 10 ? 3 : value < 100 ? 2 : 1;
    return fmt::format("{:.{}f}{}", value, digits, names[i]);
}

}  // namespace

std::int64_t parse_bytes(std::string_view text, std::string_view option) {
    const std::size_t letters = std::min(text.find_first_not_of("0123456789."), text.size());
    double value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + letters, value);
    const bool number = letters > 0 && failure == std::errc() && end == text.data() + letters;
    std::string_view unit = text.substr(letters);
    while (unit.starts_with(' ')) unit.remove_prefix(1);
    for (const Suffix &suffix : suffixes)
        if (number && unit == suffix.name && value * suffix.factor <= 0x1p62)
            return static_cast<std::int64_t>(std::llround(value * suffix.factor));
    throw InputError(
        fmt::format("{} {}: this is no number of bytes; write such as 4096, 64KiB, "
                    "80GiB or 80GB",
                    option, quoted_text(text)));
}

std::vector<std::int64_t> parse_weights(std::string_view text, std::string_view option) {
    const auto refuse = [&](std::string_view part) {
        throw InputError(
            fmt::format("{}: {} is no weight; write whole numbers from 1 on, such as "
                        "2,1,1, or 2x8,1x8 for eight ranks of each",
                        option, quoted_text(part)));
    };
    std::vector<std::int64_t> weights;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        const std::string_view part = text.substr(at, end - at);
        const std::size_t times = part.find('x');
        std::int64_t weight = 0;
        std::int64_t ranks = 1;
        if (!read_whole(part.substr(0, times), weight) || weight < 1) refuse(part);
        if (times != std::string_view::npos && !read_whole(part.substr(times + 1), ranks))
            refuse(part);
        if (ranks < 1 || static_cast<std::size_t>(ranks) > most_weights - weights.size())
            refuse(part);
        weights.insert(weights.end(), static_cast<std::size_t>(ranks), weight);
        at = end + 1;
    }
    return weights;
}

std::string show_bytes(double bytes) {
    constexpr const char *names[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
    return scaled(bytes, 1024, names, 6);
}

std::string show_count(double count) {
    constexpr const char *names[] = {"", " k", " M", " G", " T", " P"};
    return scaled(count, 1000, names, 6);
}

}  // namespace vescomm::planner
