// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace vescomm::planner {
namespace {

// `text` is a number in decimal.
std::string separate(std::string text) {
    const std::size_t first = text.find_first_of("0123456789");
    if (first == std::string::npos) return text;  // infinity
    for (std::size_t at = std::min(text.find('.'), text.size()); at > first + 3;)
        text.insert(at -= 3, 1, ',');
    return text;
}

std::string scaled(double value, double base, const char *const *names, int count) {
    int i = 0;
    for (; i + 1 < count && std::abs(value) >= base; ++i) value /= base;
    // Four digits. Numbers without a prefix are counts and have no decimals.
    const int digits = i == 0 ? 0 : value < 10 ? 3 : value < 100 ? 2 : 1;
    return fmt::format("{:.{}f}{}", value, digits, names[i]);
}

}  // namespace

std::string with_commas(std::int64_t number) {
    return separate(fmt::to_string(number));
}

std::string with_commas(double number, int decimals) {
    return separate(fmt::format("{:.{}f}", number, decimals));
}

std::string count_of(std::int64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

std::string percent(double fraction, int decimals) {
    return with_commas(100 * fraction, decimals) + " %";
}

std::string show_bytes(double bytes) {
    constexpr const char *names[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
    return scaled(bytes, 1024, names, 6);
}

std::string show_bandwidth(double bytes_per_second) {
    constexpr const char *names[] = {"B", "kB", "MB", "GB", "TB"};
    int i = 0;
    for (; i + 1 < 5 && bytes_per_second >= 1000; ++i) bytes_per_second /= 1000;
    return fmt::format("{:.4g} {}/s", bytes_per_second, names[i]);
}

std::string show_count(double count) {
    constexpr const char *names[] = {"", " k", " M", " G", " T", " P"};
    return scaled(count, 1000, names, 6);
}

}  // namespace vescomm::planner
