// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/input/sizes.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "planner/formats/quoted.h"
#include "planner/input/input.h"
#include "planner/words.h"

namespace vescomm::planner {
namespace {

using formats::quoted_text;

constexpr std::size_t max_weights = 10'000'000;

struct Suffix {
    std::string_view name;
    double bytes;
};

constexpr Suffix of_bits[] = {{"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8}, {"Tbit", 1e12 / 8}};
constexpr Suffix of_bytes[] = {
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

// Parses a size such as "1.5 GiB" with one of the suffixes; nothing if the text is not a size.
std::optional<double> read_size(std::string_view text, std::span<const Suffix> suffixes) {
    const std::size_t letters = std::min(text.find_first_not_of("0123456789."), text.size());
    double value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + letters, value);
    if (letters == 0 || failure != std::errc() || end != text.data() + letters) return std::nullopt;
    std::string_view unit = text.substr(letters);
    while (unit.starts_with(' ')) unit.remove_prefix(1);
    for (const Suffix &suffix : suffixes)
        if (unit == suffix.name && value * suffix.bytes <= 0x1p62) return value * suffix.bytes;
    return std::nullopt;
}

}  // namespace

std::int64_t parse_bytes(std::string_view text, std::string_view option) {
    if (const auto bytes = read_size(text, of_bytes)) return std::llround(*bytes);
    throw InputError(
        fmt::format("{} {}: this is no number of bytes; write such as 4096, 64KiB, "
                    "80GiB or 80GB",
                    option, quoted_text(text)));
}

double parse_bandwidth(std::string_view text, std::string_view option) {
    std::string_view size = text;
    if (size.ends_with("/s")) size.remove_suffix(2);
    auto bytes = read_size(size, of_bytes);
    if (!bytes) bytes = read_size(size, of_bits);
    if (bytes && *bytes >= 1) return *bytes;
    throw InputError(
        fmt::format("{} {}: this is no number of bytes in a second; write such as 300GB or 400Gbit",
                    option, quoted_text(text)));
}

std::int64_t parse_count(std::string_view text, std::string_view option, std::int64_t low,
                         std::int64_t high) {
    std::string digits(text);
    std::erase(digits, ',');
    std::int64_t count = 0;
    const bool whole = read_whole(digits, count) && (digits == text || with_commas(count) == text);
    if (whole && count >= low && count <= high) return count;
    throw InputError(fmt::format("{} {}: give a whole number from {} to {}", option,
                                 whole ? std::string(text) : quoted_text(text), with_commas(low),
                                 with_commas(high)));
}

std::vector<double> parse_numbers(std::string_view text, std::string_view option, std::size_t count,
                                  double low, double high) {
    const auto refuse = [&] {
        throw InputError(fmt::format("{} {}: give {} numbers from {} to {}, commas between them",
                                     option, quoted_text(text), count, with_commas(low, 0),
                                     with_commas(high, 0)));
    };
    std::vector<double> numbers;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        double number = 0;
        const auto [stop, failure] = std::from_chars(text.data() + at, text.data() + end, number);
        const bool read = failure == std::errc() && stop == text.data() + end;
        if (!read || !(number >= low && number <= high)) refuse();
        numbers.push_back(number);
        at = end + 1;
    }
    if (numbers.size() != count) refuse();
    return numbers;
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
        if (ranks < 1 || static_cast<std::size_t>(ranks) > max_weights - weights.size())
            refuse(part);
        weights.insert(weights.end(), static_cast<std::size_t>(ranks), weight);
        at = end + 1;
    }
    return weights;
}

}  // namespace vescomm::planner
