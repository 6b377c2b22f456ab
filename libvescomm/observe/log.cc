// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/log.h"

#include <cstddef>
#include <cstdio>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>

#include "base/error.h"

namespace vescomm::internal {

namespace {

constexpr std::string_view level_names[] = {"error", "warn", "info", "debug"};

std::optional<LogLevel> level_named(std::string_view name) {
    for (std::size_t i = 0; i < std::size(level_names); ++i)
        if (level_names[i] == name) return static_cast<LogLevel>(i);
    return std::nullopt;
}

struct Settings {
    std::mutex mutex;
    LogLevel level = LogLevel::warn;
    std::map<std::string, LogLevel, std::less<>> areas;
    vescomm_log_function_t sink = nullptr;
    void *context = nullptr;
};

// The settings, each thread's last error and the count of forks are the only global state of the
// library. The settings are constructed at the first use, without heap memory, and never destroyed:
// threads may log until the process ends.
Settings &settings() noexcept {
    alignas(Settings) static std::byte storage[sizeof(Settings)];
    static_assert(std::is_nothrow_default_constructible_v<Settings>);
    static Settings &only = *new (storage) Settings;
    return only;
}

}  // namespace

void set_log_filter(std::string_view filter) {
    LogLevel level_for_all = LogLevel::warn;
    std::map<std::string, LogLevel, std::less<>> areas;
    for (std::size_t at = 0; at <= filter.size();) {
        const std::size_t comma = std::min(filter.find(',', at), filter.size());
        const std::string_view part = filter.substr(at, comma - at);
        const std::size_t colon = part.find(':');
        const auto level =
            level_named(colon == std::string_view::npos ? part : part.substr(colon + 1));
        if (!level)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "VESCOMM_LOG=" + std::string(filter) + ": \"" + std::string(part) +
                            "\" is no level; give error, warn, info or debug, or AREA:LEVEL");
        if (colon == std::string_view::npos) level_for_all = *level;
        else areas[std::string(part.substr(0, colon))] = *level;
        at = comma + 1;
    }
    std::lock_guard lock(settings().mutex);
    settings().level = level_for_all;
    settings().areas = std::move(areas);
}

bool log_enabled(LogLevel level, std::string_view area) noexcept {
    std::lock_guard lock(settings().mutex);
    const auto found = settings().areas.find(area);
    return level <= (found == settings().areas.end() ? settings().level : found->second);
}

void log(LogLevel level, std::string_view area, int rank, int ranks,
         const std::string &text) noexcept {
    if (!log_enabled(level, area)) return;
    try {
        const std::string line = "vescomm " + std::string(level_names[static_cast<int>(level)]) +
                                 " " + std::to_string(rank) + "/" + std::to_string(ranks) + " " +
                                 std::string(area) + ": " + text;
        std::unique_lock lock(settings().mutex);
        const auto sink = settings().sink;
        void *context = settings().context;
        lock.unlock();
        if (sink != nullptr) sink(context, static_cast<int32_t>(level), line.c_str());
        else std::fprintf(stderr, "%s\n", line.c_str());
    } catch (...) {
        // No memory for the line: it is dropped.
    }
}

void set_log_sink(vescomm_log_function_t sink, void *context) noexcept {
    std::lock_guard lock(settings().mutex);
    settings().sink = sink;
    settings().context = context;
}

}  // namespace vescomm::internal
