// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/trace.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <string_view>

#include "observe/json_text.h"

namespace vescomm::internal {

void Trace::start(std::uint64_t max_spans) {
    std::lock_guard lock(mutex_);
    max_spans_ = max_spans;
    on_.store(true, std::memory_order_relaxed);
}

void Trace::add(std::string name, std::string track, double begin, double end,
                std::string arguments) {
    if (!on()) return;
    std::lock_guard lock(mutex_);
    if (spans_.size() >= max_spans_) return drop();
    spans_.push_back({std::move(name), std::move(track), begin, end, std::move(arguments)});
}

// JSON in Chrome's Trace Event Format: a process for each rank, a thread for each track, and
// complete events ("X") in microseconds.
std::string Trace::events(int rank, std::uint64_t max_bytes) const {
    std::lock_guard lock(mutex_);
    std::map<std::string_view, int> tracks;
    std::string text;
    const auto append = [&text](const std::string &event) {
        if (!text.empty()) text += ",\n";
        text += event;
    };
    // Metadata event ("M"), which names a process or a thread: {"args":{key:name},...}.
    const auto label = [&](const char *what, const char *key, std::string_view name,
                           const std::string &more = {}) {
        append(fmt::format(R"({{"args":{{"{}":{}}},"name":"{}","ph":"M","pid":{}{}}})", key,
                           quoted_json(name), what, rank, more));
    };
    label("process_name", "name", fmt::format("rank {}", rank));
    std::uint64_t dropped = dropped_.load(std::memory_order_relaxed);
    for (const Span &span : spans_) {
        if (text.size() >= max_bytes) {
            dropped += static_cast<std::uint64_t>(&spans_.back() - &span) + 1;
            break;
        }
        const auto [track, added] = tracks.emplace(span.track, static_cast<int>(tracks.size()));
        const std::string thread = fmt::format(R"(,"tid":{})", track->second);
        if (added) label("thread_name", "name", span.track, thread);
        const std::string arguments =
            span.arguments.empty() ? "" : "\"args\":" + span.arguments + ",";
        append(fmt::format(R"({{{}"dur":{},"name":{},"ph":"X","pid":{}{},"ts":{}}})", arguments,
                           json_number((span.end - span.begin) * 1e6), quoted_json(span.name), rank,
                           thread, json_number(span.begin * 1e6)));
    }
    if (dropped > 0) label("process_labels", "labels", fmt::format("{} spans dropped", dropped));
    return text;
}

double trace_seconds() noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::string trace_arguments(std::span<const vescomm_trace_argument_t> arguments) {
    std::string text = "{";
    for (const vescomm_trace_argument_t &one : arguments) {
        if (text.size() > 1) text += ',';
        text += quoted_json(one.name) + ':';
        text += one.text != nullptr ? quoted_json(one.text) : json_number(one.number);
    }
    return text + '}';
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

}  // namespace vescomm::internal
