// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/metrics.h"

#include <fmt/format.h>

namespace vescomm::internal {

// Prometheus text format 0.0.4. A metric family consists of its help, its type and its samples.
std::string metrics_text(const vescomm_comm_info_t &info, const vescomm_comm_counters_t &counters,
                         int communicator, bool broken) {
    std::string text;
    const std::string labels =
        fmt::format("rank=\"{}\",communicator=\"{}\"", info.rank, communicator);
    const auto append = [&](const char *name, const char *type, const char *help, auto value,
                            const std::string &more = {}) {
        text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0}{{{3}{4}}} {5}\n", name, help, type,
                            labels, more, value);
    };
    append("vescomm_info", "gauge", "Identity of the rank; always 1.", 1,
           fmt::format(",ranks=\"{}\",node=\"{}\",nodes=\"{}\",version=\"{}\"", info.ranks,
                       info.node, info.nodes, vescomm_get_version()));
    append("vescomm_broken", "gauge", "1 when the communicator is broken.", broken ? 1 : 0);
    append("vescomm_operations_total", "counter", "Operations started.", counters.operations);
    append("vescomm_written_bytes_total", "counter",
           "Bytes written by copies and conversions of this rank.", counters.bytes_written);
    append("vescomm_reduced_bytes_total", "counter", "Bytes read by reductions.",
           counters.bytes_reduced);
    append("vescomm_sent_bytes_total", "counter", "Bytes sent to other nodes.",
           counters.bytes_sent);
    append("vescomm_registered_bytes_total", "counter",
           "Bytes read in registered arrays of other ranks.", counters.bytes_registered);
    append("vescomm_sleeps_total", "counter", "Times a wait gave up its core.", counters.sleeps);
    append("vescomm_busy_seconds_total", "counter",
           "Seconds of moving and reducing bytes, 16 KiB and more at a time.",
           counters.busy_seconds);
    append("vescomm_waiting_seconds_total", "counter",
           "Seconds in waits that have ended, without the busy seconds in them.",
           counters.waiting_seconds);
    return text;
}

}  // namespace vescomm::internal
