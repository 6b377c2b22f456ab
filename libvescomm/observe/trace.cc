// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/trace.h"

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

namespace vescomm {

void Trace::start(std::uint64_t most_spans) {
    std::lock_guard lock(mutex_);
    most_spans_ = most_spans;
    on_.store(true, std::memory_order_relaxed);
}

void Trace::add(std::string name, std::string track, double begin, double end) {
    if (!on()) return;
    std::lock_guard lock(mutex_);
    if (spans_.size() >= most_spans_) {
        ++dropped_;
        return;
    }
    spans_.push_back({std::move(name), std::move(track), begin, end});
}

// The JSON of the Trace Event Format of Chrome: a process for each
// rank, a thread for each track, complete events ("X") in microseconds.
std::string Trace::events(int rank, std::uint64_t most_bytes) const {
    using nlohmann::json;
    std::lock_guard lock(mutex_);
    std::map<std::string, int> tracks;
    std::string text;
    const auto append = [&text](const json &event) {
        if (!text.empty()) text += ",\n";
        // Names come from callers: bytes that are not UTF-8 are replaced.
        text += event.dump(-1, ' ', false, json::error_handler_t::replace);
    };
    append({{"ph", "M"},
            {"pid", rank},
            {"name", "process_name"},
            {"args", {{"name", "rank " + std::to_string(rank)}}}});
    std::uint64_t dropped = dropped_;
    for (const Span &span : spans_) {
        if (text.size() >= most_bytes) {
            dropped = dropped_ + static_cast<std::uint64_t>(&spans_.back() - &span) + 1;
            break;
        }
        const auto [track, added] = tracks.emplace(span.track, static_cast<int>(tracks.size()));
        if (added)
            append({{"ph", "M"},
                    {"pid", rank},
                    {"tid", track->second},
                    {"name", "thread_name"},
                    {"args", {{"name", span.track}}}});
        append({{"ph", "X"},
                {"pid", rank},
                {"tid", track->second},
                {"name", span.name},
                {"ts", span.begin * 1e6},
                {"dur", (span.end - span.begin) * 1e6}});
    }
    if (dropped > 0)
        append({{"ph", "M"},
                {"pid", rank},
                {"name", "process_labels"},
                {"args", {{"labels", std::to_string(dropped) + " spans dropped"}}}});
    return text;
}

double trace_seconds() noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::string trace_document(const std::vector<std::string> &events) {
    std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    bool first = true;
    for (const std::string &some : events) {
        if (some.empty()) continue;
        if (!first) text += ",\n";
        text += some;
        first = false;
    }
    return text + "\n]}\n";
}

}  // namespace vescomm
