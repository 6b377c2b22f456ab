// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "convert.h"
#include "docs.h"
#include "gil.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

using LogLine = std::pair<int, std::string>;  // level and text

// Lines of the log on their way to Python. Threads of the library append them: they must not wait
// for the GIL, whose holder may wait for them. A thread of Python takes them.
class LogLines {
public:
    void append(int level, const char *line) {
        const std::lock_guard lock(mutex_);
        // A program whose logging is stuck loses lines, not its memory.
        constexpr std::size_t max = 10'000;
        if (lines_.size() < max) lines_.emplace_back(level, line);
        changed_.notify_one();
    }

    // Waits for a line. Returns nothing after close().
    std::optional<LogLine> take() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closed_ || !lines_.empty(); });
        if (lines_.empty()) return {};
        LogLine line = std::move(lines_.front());
        lines_.pop_front();
        return line;
    }

    void set_closed(bool closed) {
        const std::lock_guard lock(mutex_);
        closed_ = closed;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<LogLine> lines_;
    bool closed_ = false;
};

LogLines &log_lines() {
    static auto *lines = new LogLines;  // used until the process has ended
    return *lines;
}

void redirect_log(bool on) {
    log_lines().set_closed(!on);
    vescomm_log_function_t function = nullptr;
    if (on)
        function = [](void *, std::int32_t level, const char *line) {
            log_lines().append(level, line);
        };
    check(vescomm_set_log(function, nullptr));
}

std::optional<std::pair<int, nb::str>> take_log_line() {
    std::optional<LogLine> line;
    {
        const GilReleased released;
        line = log_lines().take();
    }
    if (!line) return {};
    return std::pair(line->first, to_str(line->second));
}

void start_trace(const Comm &comm, std::uint64_t spans) {
    check(vescomm_trace_start(comm.handle().get(), spans));
}

using SpanValues = std::map<std::string, std::variant<double, std::string>>;

void add_span(const Comm &comm, const std::string &name, const std::string &track, double begin,
              double end, const SpanValues &values) {
    std::vector<vescomm_trace_argument_t> arguments;
    for (const auto &[key, value] : values) {
        const auto *text = std::get_if<std::string>(&value);
        arguments.push_back({c_string(key, "a name in values"),
                             text == nullptr ? nullptr : c_string(*text, "a text in values"),
                             text == nullptr ? std::get<double>(value) : 0});
    }
    check(vescomm_trace_add_span_with(comm.handle().get(), c_string(name, "name"),
                                      c_string(track, "track"), begin, end, arguments.data(),
                                      arguments.size()));
}

// Paths are bytes: their names need not be UTF-8.
std::string path_of(const nb::bytes &path) {
    std::string text(path.c_str(), path.size());
    c_string(text, "path");
    return text;
}

void write_trace(Comm &comm, const std::optional<nb::bytes> &path) {
    const std::string text = path ? path_of(*path) : std::string();
    const char *const to = path ? text.c_str() : nullptr;
    comm.run([&](vescomm_comm_t *on) { return vescomm_trace_write(on, to); });
}

void write_flight_recorder(const Comm &comm, const nb::bytes &path) {
    const std::shared_ptr<CommHandle> handle = comm.share();
    const std::string to = path_of(path);
    vescomm_status_t status = VESCOMM_OK;
    {
        // Safe while another thread waits.
        const GilReleased released;
        status = vescomm_flight_recorder_write(handle->get(), to.c_str());
    }
    check(status);
}

}  // namespace

void define_observe(nb::module_ &module, nb::class_<Comm> &comm) {
    module.def("redirect_log", redirect_log, nb::arg("on"));
    module.def("take_log_line", take_log_line);
    module.def("get_trace_seconds", vescomm_trace_get_seconds);
    comm.def("start_trace", start_trace, nb::arg("spans") = 0, docs::start_trace);
    comm.def("add_span", add_span, nb::arg("name"), nb::arg("track"), nb::arg("begin"),
             nb::arg("end"), nb::arg("values") = SpanValues(), docs::add_span);
    comm.def("_write_trace", write_trace, nb::arg("path").none());
    comm.def("_write_flight_recorder", write_flight_recorder, nb::arg("path"));
}

}  // namespace vescomm::python
