// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

// Records spans of time on one rank. A trace is off until it is started; while it is off, recording
// costs one load.
//
// Threads: safe.
class Trace {
public:
    void start(std::uint64_t max_spans);
    bool on() const noexcept { return on_.load(std::memory_order_relaxed); }

    // Adds a span; `begin` and `end` are times of trace_seconds(). Spans beyond the limit are
    // counted and dropped. `arguments`: of trace_arguments(), or empty.
    void add(std::string name, std::string track, double begin, double end,
             std::string arguments = {});

    // Adds a span of a complete operation without throwing: without memory, the span is dropped.
    // `name` is a function that makes the name; it is called only if the trace is on.
    template <typename Name>
    void record(const Name &name, const char *track, double begin, double end) noexcept {
        if (!on()) return;
        try {
            add(name(), track, begin, end);
        } catch (...) {
            drop();
        }
    }

    // Returns the events of this rank for a Chrome trace: JSON objects separated by commas, without
    // brackets. Once the text has `max_bytes`, the remaining spans are dropped, and the label of
    // the rank says how many.
    std::string events(int rank, std::uint64_t max_bytes) const;

private:
    struct Span {
        std::string name;
        std::string track;
        double begin;
        double end;
        std::string arguments;  // a JSON object; empty: none
    };

    void drop() noexcept { dropped_.fetch_add(1, std::memory_order_relaxed); }

    std::atomic<bool> on_{false};
    mutable std::mutex mutex_;
    std::uint64_t max_spans_ = 0;
    std::atomic<std::uint64_t> dropped_{0};
    std::vector<Span> spans_;
};

// Seconds of the machine's monotonic clock, which all processes of the machine share.
double trace_seconds() noexcept;

// Returns values as a JSON object.
std::string trace_arguments(std::span<const vescomm_trace_argument_t> arguments);

// Wraps the events of all ranks into the contents of one trace file.
std::string trace_document(const std::vector<std::string> &events);

}  // namespace vescomm::internal
