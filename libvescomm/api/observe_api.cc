// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <string>

#include "api/guard.h"
#include "api/handles.h"
#include "base/interrupt.h"
#include "comm/agree.h"
#include "comm/collective_create.h"
#include "comm/communicator.h"
#include "observe/file.h"
#include "observe/log.h"
#include "observe/trace.h"

using namespace vescomm::internal;

namespace {

// Limit on the traces of all ranks together, which the control plane gathers at once.
constexpr std::uint64_t max_trace_bytes = std::uint64_t{512} << 20;

// Throws if a function that records a span has wrong arguments.
void require_span(const char *function, const vescomm_comm_t *comm, const char *name,
                  const char *track, double begin, double end) {
    require(comm, function, "comm");
    require(name, function, "name");
    require(track, function, "track");
    if (begin <= end) return;
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                std::string(function) + ": \"" + name + "\" begins at " + std::to_string(begin) +
                    " s and ends at " + std::to_string(end) + " s; the end must not be earlier");
}

}  // namespace

vescomm_status_t vescomm_set_interrupt(vescomm_interrupt_function_t function, void *context) {
    return guarded([&] { set_interrupt(function, context); });
}

int32_t vescomm_is_interrupted(void) {
    return interrupted() ? 1 : 0;
}

vescomm_status_t vescomm_trace_start(vescomm_comm_t *comm, uint64_t spans) {
    return guarded([&] {
        require(comm, "vescomm_trace_start", "comm");
        constexpr uint64_t by_default = 1'000'000;
        comm->value->trace().start(spans == 0 ? by_default : spans);
    });
}

double vescomm_trace_get_seconds(void) {
    return trace_seconds();
}

vescomm_status_t vescomm_trace_add_span(vescomm_comm_t *comm, const char *name, const char *track,
                                        double begin, double end) {
    return guarded([&] {
        require_span("vescomm_trace_add_span", comm, name, track, begin, end);
        Trace &trace = comm->value->trace();
        if (trace.on()) trace.add(name, track, begin, end);
    });
}

vescomm_status_t vescomm_trace_add_span_with(vescomm_comm_t *comm, const char *name,
                                             const char *track, double begin, double end,
                                             const vescomm_trace_argument_t *arguments,
                                             size_t count) {
    return guarded([&] {
        constexpr const char *function = "vescomm_trace_add_span_with";
        require_span(function, comm, name, track, begin, end);
        if (count > 0) require(arguments, function, "arguments");
        const std::span given(arguments, count);
        for (const vescomm_trace_argument_t &one : given)
            require(one.name, function, "the name of an argument");
        Trace &trace = comm->value->trace();
        if (trace.on()) trace.add(name, track, begin, end, trace_arguments(given));
    });
}

vescomm_status_t vescomm_trace_write(vescomm_comm_t *comm, const char *path) {
    return guarded([&] {
        require(comm, "vescomm_trace_write", "comm");
        Communicator &c = *comm->value;
        c.check();
        collective_create(c, [&] {
            const auto share = max_trace_bytes / static_cast<std::uint64_t>(c.ranks());
            const auto events = c.gather("trace", c.trace().events(c.rank(), share), c.deadline());
            agree(c, "writing the trace", c.deadline(), [&] {
                if (c.rank() != 0) return std::string();
                require(path, "vescomm_trace_write", "path");
                std::string text = trace_document(events);
                write_file_by(path, std::move(text), "the trace", c.deadline());
                return std::string();
            });
        });
    });
}

vescomm_status_t vescomm_flight_recorder_write(const vescomm_comm_t *comm, const char *path) {
    return guarded([&] {
        require(comm, "vescomm_flight_recorder_write", "comm");
        require(path, "vescomm_flight_recorder_write", "path");
        comm->value->write_flight_recorder(path);
    });
}

vescomm_status_t vescomm_set_log(vescomm_log_function_t sink, void *context) {
    return guarded([&] { set_log_sink(sink, context); });
}
