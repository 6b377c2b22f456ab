// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace vescomm {

// Spans of time on one rank. Off until started: then recording costs one load.
//
// Threads: safe.
class Trace {
public:
    void start(std::uint64_t max_spans);
    bool on() const noexcept { return on_.load(std::memory_order_relaxed); }

    // By trace_seconds(). Spans past the limit are counted and dropped.
    void add(std::string name, std::string track, double begin, double end);

    // The same for what the library itself records of an operation that is complete: without memory
    // for the span it is dropped. `name` makes the name, only when a trace was started.
    template <typename Name>
    void record(const Name &name, const char *track, double begin, double end) noexcept {
        if (!on()) return;
        try {
            add(name(), track, begin, end);
        } catch (...) {
            drop();
        }
    }

    // The events of this rank for a Chrome trace: JSON objects separated by commas, no brackets.
    // Spans that begin beyond `max_bytes` are dropped, and the rank's label says how many.
    std::string events(int rank, std::uint64_t max_bytes) const;

private:
    struct Span {
        std::string name;
        std::string track;
        double begin;
        double end;
    };

    void drop() noexcept { dropped_.fetch_add(1, std::memory_order_relaxed); }

    std::atomic<bool> on_{false};
    mutable std::mutex mutex_;
    std::uint64_t max_spans_ = 0;
    std::atomic<std::uint64_t> dropped_{0};
    std::vector<Span> spans_;
};

// Seconds of the machine's monotonic clock, the same for all its processes.
double trace_seconds() noexcept;

// Wraps the events of all ranks into one file's contents.
std::string trace_document(const std::vector<std::string> &events);

}  // namespace vescomm
