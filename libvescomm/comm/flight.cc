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

// A word, taken apart.
struct Recorded {
    explicit Recorded(std::uint64_t word)
        : op(static_cast<vescomm_op_t>(part(word, type_bits + row_bits + byte_bits, op_bits))),
          type(static_cast<vescomm_type_t>(part(word, row_bits + byte_bits, type_bits))),
          row(part(word, byte_bits, row_bits)),
          bytes(part(word, 0, byte_bits)) {}

    bool is_message() const { return row >= messages; }
    bool exists() const { return is_message() || row < algorithms().size(); }
    Collective collective() const {
        if (is_message()) return row == messages ? Collective::send : Collective::receive;
        return algorithms()[row].collective;
    }

    vescomm_op_t op;
    vescomm_type_t type;
    std::uint64_t row, bytes;
};

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

std::string latest_collective(const FlightRecorder &recorder) {
    const std::vector<FlightRecorder::Entry> entries = recorder.entries();
    if (entries.empty()) return {};
    const Recorded word(entries.back().what);
    if (!word.exists() || word.is_message()) return {};
    const Collective collective = word.collective();
    if (word.type == VESCOMM_TYPE_DEFAULT) return std::string(name_of(collective));
    return fmt::format("{} of {} {} {}", name_of(collective), word.bytes / size_of(word.type),
                       name_of_type(word.type),
                       collective == Collective::all_to_all_v ? "sent" : "in all");
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
        const Recorded word(entry.what);
        if (!word.exists()) continue;
        const bool message = word.is_message();
        const Collective collective = word.collective();
        text +=
            fmt::format(R"({{"operation":{},"collective":"{}","type":"{}","op":"{}","bytes":{},)"
                        R"("algorithm":"{}","state":"{}")",
                        entry.number, name_of(collective),
                        word.type == VESCOMM_TYPE_DEFAULT ? "none" : name_of_type(word.type),
                        reduces(collective) ? name_of_op(word.op) : "none", word.bytes,
                        message ? "eager_buffers" : algorithms()[word.row].name,
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
