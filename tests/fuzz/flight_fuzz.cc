// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Flight files, as vescomm-info --flight reads them (tools/flight_report.h). The input is one file,
// or several separated by zero bytes.
//
// Invariants: accepted files can be compared and reported; no report contains terminal commands.
#include "tools/flight_report.h"

#include <fmt/format.h>

#include "base/error.h"
#include "comm/flight.h"
#include "fuzz/fuzz.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

void check(const Flight &flight) {
    require(flight.rank >= 0 && flight.rank < flight.ranks, "a rank is below the number of ranks");
    for (const auto &[number, operation] : flight.operations)
        require(number >= 1 && number <= flight.started, "an operation has been started");
}

// Checks for lines of printable text: no ASCII control character, nor one of U+0080 to U+009F,
// which terminals also interpret.
void require_printable(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        require((byte >= ' ' && byte != 0x7f) || byte == '\n', "a report has no control character");
        if (byte != 0xc2 || i + 1 == text.size()) continue;
        require(static_cast<unsigned char>(text[i + 1]) >= 0xa0,
                "a report has no control character of the second set");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    try {
        std::vector<Flight> flights;
        do {
            flights.push_back(
                parse_flight("file " + std::to_string(flights.size()), input.until('\0')));
            check(flights.back());
        } while (!input.empty());
        const std::string report = compare_flights(flights);
        require(report.ends_with("\n"), "a report ends its last line");
        require_printable(report);
    } catch (const Error &error) {
        require(error.status == VESCOMM_ERROR_INVALID_ARGUMENT, "the file is to blame");
        require(std::string_view(error.what()).starts_with("file "), "a sentence names the file");
        require_printable(error.what());
    }
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    // As a recorder writes them, except values that differ from run to run.
    const auto with_zero = [](std::string text, const std::string &key) {
        const std::size_t begin = text.find(key) + key.size();
        return text.replace(begin, text.find(',', begin) - begin, "0");
    };
    const auto flight_of = [&](int rank, int operations, int complete, const char *why) {
        FlightRecorder recorder;
        for (int i = 0; i < operations; ++i) {
            const std::uint64_t number =
                recorder.start(flight_word(algorithms()[0], VESCOMM_F32, VESCOMM_SUM, 1024), false);
            if (i < complete) recorder.complete(number);
        }
        FlightHeader header;
        header.rank = rank;
        header.ranks = 3;
        header.status = *why == '\0' ? VESCOMM_OK : VESCOMM_ERROR_TIMEOUT;
        header.why = why;
        return with_zero(with_zero(flight_text(header, recorder), "\"process\":"), "\"written\":");
    };
    const auto line = [](int number, const char *collective, const char *state) {
        return fmt::format(
            R"({{"operation":{},"collective":"{}","type":"f32","op":"sum","algorithm":"flat",)"
            R"("bytes":64,"state":"{}"}})"
            "\n",
            number, collective, state);
    };
    const auto head = [](int rank, int operations) {
        return fmt::format(R"({{"flight_recorder":1,"rank":{},"ranks":3,"operations":{},)"
                           R"("status":"ok","why":""}})"
                           "\n",
                           rank, operations);
    };
    const std::string zero(1, '\0');
    return {
        {"written", flight_of(0, 3, 2, "rank 2 did not answer") + zero + flight_of(1, 3, 3, "")},
        {"behind", head(0, 2) + line(1, "all_reduce", "completed") + line(2, "barrier", "started") +
                       zero + head(1, 1) + line(1, "all_reduce", "completed")},
        {"different", head(0, 1) + line(1, "all_reduce", "started") + zero + head(2, 1) +
                          line(1, "barrier", "started")},
        {"waiting", head(0, 1) + line(1, "barrier", "started")},
        {"complete", head(0, 1) + line(1, "barrier", "completed")},
        {"long-ago", head(0, 1000) + zero + head(1, 900)},
        {"twice", head(0, 1) + zero + head(0, 1)},
        {"operation-twice",
         head(0, 1) + line(1, "barrier", "started") + line(1, "barrier", "started")},
        {"state", head(0, 1) + line(1, "barrier", "lost")},
        {"control-character", head(0, 1) + line(1, "\\u001b[2J\\u009b2J", "started")},
        {"no-object", "[]\n"},
        {"nothing", ""},
    };
}
