// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/flight.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/types.h"
#include "observe/json_text.h"

namespace vescomm::internal {

namespace {

constexpr int byte_bits = 44, row_bits = 8, type_bits = 6, op_bits = 4;
constexpr std::uint64_t max_bytes = (std::uint64_t{1} << byte_bits) - 1;
// Instead of a row: send, then receive.
constexpr std::uint64_t messages = (1 << row_bits) - 2;
static_assert(last_type < 1 << type_bits && last_op < 1 << op_bits);
static_assert(op_bits + type_bits + row_bits + byte_bits < 63);

// `bits` bits of a word, above its lowest `before` bits.
std::uint64_t part(std::uint64_t word, int before, int bits) {
    return word >> before & ((std::uint64_t{1} << bits) - 1);
}

// Seconds, to the millisecond.
double seconds(std::int64_t nanoseconds) {
    return std::round(static_cast<double>(nanoseconds) / 1e6) / 1e3;
}

}  // namespace

std::uint64_t flight_word(const AlgorithmEntry &algorithm, vescomm_type_t type, vescomm_op_t op,
                          std::uint64_t bytes) {
    const auto row = static_cast<std::uint64_t>(&algorithm - algorithms().data());
    return static_cast<std::uint64_t>(op) << (type_bits + row_bits + byte_bits) |
           static_cast<std::uint64_t>(type) << (row_bits + byte_bits) | row << byte_bits |
           std::min(bytes, max_bytes);
}

std::uint64_t flight_word(Collective message, vescomm_type_t type, std::uint64_t bytes) {
    const std::uint64_t row = messages + (message == Collective::receive ? 1 : 0);
    return static_cast<std::uint64_t>(type) << (row_bits + byte_bits) | row << byte_bits |
           std::min(bytes, max_bytes);
}

std::string flight_text(const FlightHeader &header, const FlightRecorder &recorder) {
    // The cause may quote text of the caller.
    std::string text = fmt::format(
        R"({{"flight_recorder":1,"version":"{}","rank":{},"ranks":{},"communicator":{},)"
        R"("process":{},"status":"{}","why":{},"written":{},"operations":{}}})"
        "\n",
        vescomm_get_version(), header.rank, header.ranks, header.communicator, getpid(),
        vescomm_status_get_name(header.status), quoted_json(header.why),
        seconds(real_time_of_last_tick()), recorder.started());
    for (const FlightRecorder::Entry &entry : recorder.entries()) {
        const auto op =
            static_cast<vescomm_op_t>(part(entry.what, type_bits + row_bits + byte_bits, op_bits));
        const auto type =
            static_cast<vescomm_type_t>(part(entry.what, row_bits + byte_bits, type_bits));
        const std::uint64_t row = part(entry.what, byte_bits, row_bits);
        const bool message = row >= messages;
        if (!message && row >= algorithms().size()) continue;
        const Collective collective = !message          ? algorithms()[row].collective
                                      : row == messages ? Collective::send
                                                        : Collective::receive;
        text += fmt::format(
            R"({{"operation":{},"collective":"{}","type":"{}","op":"{}","bytes":{},)"
            R"("algorithm":"{}","state":"{}")",
            entry.number, name_of(collective),
            type == VESCOMM_TYPE_DEFAULT ? "none" : name_of_type(type),
            reduces(collective) ? name_of_op(op) : "none", part(entry.what, 0, byte_bits),
            message ? "eager_buffers" : algorithms()[row].name,
            entry.completed ? "completed" : "started");
        if (message && entry.peer < 0) text += fmt::format(R"(,"peer":"any","tag":{})", entry.tag);
        else if (message)
            text += fmt::format(R"(,"peer":{},"tag":{}{})", entry.peer, entry.tag,
                                entry.any_source ? R"(,"asked":"any")" : "");
        if (entry.started != 0) text += fmt::format(R"(,"started":{})", seconds(entry.started));
        text += "}\n";
    }
    return text;
}

}  // namespace vescomm::internal
