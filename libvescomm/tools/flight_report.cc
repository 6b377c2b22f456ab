// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/flight_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"

namespace vescomm::internal {

namespace {

using nlohmann::json;

// Limits on untrusted files, far above what a recorder writes.
constexpr std::size_t max_file_bytes = 4 << 20;
constexpr std::size_t max_line_bytes = 64 << 10;
constexpr std::size_t max_operations = 4096;
constexpr int max_ranks = 1'000'000;
constexpr std::size_t max_named = 8;

[[noreturn]] void refuse(const std::string &why) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, why);
}

// A line of a file: a JSON object, parsed strictly.
class Line {
public:
    Line(std::string where, std::string_view text) : where_(std::move(where)) {
        if (text.size() > max_line_bytes) wrong("is too long");
        line_ = json::parse(text, nullptr, false);
        if (!line_.is_object()) wrong("is no object of JSON");
    }

    std::string text(const char *key) const {
        const json &value = member(key);
        if (!value.is_string()) wrong(fmt::format("has no text as \"{}\"", key));
        return printable(value.get<std::string>());
    }

    std::uint64_t number(const char *key, std::uint64_t min, std::uint64_t max) const {
        const json &value = member(key);
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() < min ||
            value.get<std::uint64_t>() > max)
            wrong(fmt::format("has no number from {} to {} as \"{}\"", min, max, key));
        return value.get<std::uint64_t>();
    }

    bool has(const char *key) const { return line_.contains(key); }
    bool has_text(const char *key) const { return has(key) && line_[key].is_string(); }

    [[noreturn]] void wrong(const std::string &why) const {
        refuse(fmt::format("{} {}; give files that a flight recorder wrote", where_, why));
    }

private:
    const json &member(const char *key) const {
        const auto found = line_.find(key);
        if (found == line_.end()) wrong(fmt::format("has no \"{}\"", key));
        return *found;
    }

    // Replaces control characters, because the text is shown on a terminal: those of ASCII, and
    // U+0080 to U+009F, which are 0xc2 and a byte below 0xa0 in UTF-8.
    static std::string printable(std::string text) {
        for (std::size_t i = 0; i < text.size(); ++i) {
            const auto byte = static_cast<unsigned char>(text[i]);
            if (byte < ' ' || byte == 127) text[i] = '?';
            if (byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0)
                text.replace(i, 2, "?");
        }
        return text;
    }

    std::string where_;
    json line_;
};

std::string ranks_text(const std::vector<int> &ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < std::min(ranks.size(), max_named); ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (ranks.size() > max_named)
        text += " and " + std::to_string(ranks.size() - max_named) + " more";
    return text;
}

std::string words(const Flight::Operation &operation) {
    if (operation.type == "none") return operation.collective;
    return fmt::format("{} of {} bytes of {}{} by {}", operation.collective, operation.bytes,
                       operation.type, operation.op == "none" ? "" : " (" + operation.op + ")",
                       operation.algorithm + operation.message);
}

bool is_message(const Flight::Operation &operation) {
    return !operation.message.empty();
}

// The peer and the tag of a message.
std::string message_text(const Line &line, std::string_view collective, int ranks) {
    const auto tag = line.number("tag", 0, std::numeric_limits<std::int32_t>::max());
    const auto any = [&](const char *key) {
        if (line.text(key) != "any") line.wrong(fmt::format("has no known \"{}\"", key));
        return std::string("any rank");
    };
    const auto peer = [&] {
        return fmt::format("rank {}",
                           line.number("peer", 0, static_cast<std::uint64_t>(ranks) - 1));
    };
    std::string whom;
    if (collective == "send") whom = " to " + peer();
    else if (line.has("asked")) whom = " from " + any("asked") + ", found at " + peer() + ",";
    else whom = " from " + (line.has_text("peer") ? any("peer") : peer());
    return fmt::format("{} with tag {}", whom, tag);
}

const Flight::Operation *find(const Flight &flight, std::uint64_t number) {
    const auto found = flight.operations.find(number);
    return found == flight.operations.end() ? nullptr : &found->second;
}

// True if two ranks called the same operation. Bytes of an all_to_all_v are not compared, because
// each rank knows only its own part.
bool same(const Flight::Operation &a, const Flight::Operation &b) {
    return a.collective == b.collective && a.type == b.type && a.op == b.op &&
           a.algorithm == b.algorithm && (a.bytes == b.bytes || a.collective == "all_to_all_v");
}

// The first operation that is not the same on two ranks.
std::optional<std::string> find_disagreement(const std::vector<Flight> &flights) {
    std::map<std::uint64_t, const Flight *> first;
    std::map<std::uint64_t, std::string> found;
    for (const Flight &flight : flights)
        for (const auto &[number, operation] : flight.operations) {
            const Flight &other = *first.emplace(number, &flight).first->second;
            const Flight::Operation &theirs = other.operations.at(number);
            if (!same(theirs, operation))
                found.emplace(number, fmt::format("{} on rank {}, and {} on rank {}", words(theirs),
                                                  other.rank, words(operation), flight.rank));
        }
    if (found.empty()) return std::nullopt;
    return fmt::format("Ranks called different things: operation {} is {}.", found.begin()->first,
                       found.begin()->second);
}

// Describes an operation if any rank still has it.
std::string describe(const std::vector<Flight> &flights, std::uint64_t number) {
    for (const Flight &flight : flights)
        if (const Flight::Operation *operation = find(flight, number))
            return fmt::format("operation {}, {}", number, words(*operation));
    return fmt::format("operation {}, which is too long ago for the others to know", number);
}

std::optional<std::string> find_ranks_behind(const std::vector<Flight> &flights) {
    const auto [min, max] = std::ranges::minmax_element(flights, {}, &Flight::started);
    if (min->started == max->started) return std::nullopt;
    std::vector<int> behind;
    for (const Flight &flight : flights)
        if (flight.started == min->started) behind.push_back(flight.rank);
    return fmt::format("Behind: {}. Not started there: {}.", ranks_text(behind),
                       describe(flights, min->started + 1));
}

// For ranks that have started the same operations: the first operation that is not complete on all.
std::optional<std::string> find_ranks_waiting(const std::vector<Flight> &flights) {
    std::uint64_t first = UINT64_MAX;
    for (const Flight &flight : flights)
        for (const auto &[number, operation] : flight.operations)
            if (!operation.completed) first = std::min(first, number);
    if (first == UINT64_MAX) return std::nullopt;
    std::vector<int> waiting;
    for (const Flight &flight : flights)
        if (const auto *operation = find(flight, first); operation && !operation->completed)
            waiting.push_back(flight.rank);
    return fmt::format("Started on every rank that wrote, and not complete on {}: {}.",
                       ranks_text(waiting), describe(flights, first));
}

// For ranks that have messages: the operations that may explain the end of each rank.
std::string operations_by_rank(const std::vector<Flight> &flights) {
    std::string text;
    for (const Flight &flight : flights) {
        std::string waiting, last;
        for (const auto &[number, operation] : flight.operations) {
            const std::string its = fmt::format("operation {}, {}", number, words(operation));
            if (!operation.completed && waiting.empty()) waiting = its;
            if (operation.completed && is_message(operation)) last = its;
        }
        if (!waiting.empty())
            text += fmt::format("Not complete on rank {}: {}.\n", flight.rank, waiting);
        if (!last.empty())
            text += fmt::format("Last complete message of rank {}: {}.\n", flight.rank, last);
    }
    return text;
}

}  // namespace

Flight parse_flight(const std::string &file, std::string_view text) {
    if (text.size() > max_file_bytes)
        refuse(fmt::format("{} is larger than {} bytes; give files that a flight recorder wrote",
                           file, max_file_bytes));
    Flight flight;
    flight.file = file;
    std::size_t count = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const Line line(fmt::format("{}: line {}", file, ++count), text.substr(at, end - at));
        at = end + 1;
        if (count == 1) {
            line.number("flight_recorder", 1, 1);
            flight.ranks = static_cast<int>(line.number("ranks", 1, max_ranks));
            flight.rank = static_cast<int>(
                line.number("rank", 0, static_cast<std::uint64_t>(flight.ranks) - 1));
            flight.status = line.text("status");
            flight.why = line.text("why");
            flight.started = line.number("operations", 0, std::uint64_t{1} << 62);
            continue;
        }
        if (count > max_operations) line.wrong("is one too many");
        // One more operation may have started while the file was being written.
        const std::uint64_t number = line.number("operation", 1, flight.started + 1);
        const std::string state = line.text("state");
        if (state != "started" && state != "completed") line.wrong("has no known state");
        Flight::Operation operation{line.text("collective"),
                                    line.text("type"),
                                    line.text("op"),
                                    line.text("algorithm"),
                                    line.number("bytes", 0, UINT64_MAX),
                                    state == "completed"};
        if (operation.collective == "send" || operation.collective == "receive")
            operation.message = message_text(line, operation.collective, flight.ranks);
        if (!flight.operations.emplace(number, std::move(operation)).second)
            line.wrong("has an operation that was there before");
        flight.started = std::max(flight.started, number);
    }
    if (count == 0) refuse(file + " is empty; give files that a flight recorder wrote");
    return flight;
}

std::string compare_flights(std::vector<Flight> flights) {
    std::ranges::sort(flights, {}, &Flight::rank);
    for (std::size_t i = 1; i < flights.size(); ++i) {
        const Flight &a = flights[i - 1], &b = flights[i];
        if (a.rank == b.rank)
            refuse(fmt::format("{} and {} are both of rank {}; give one file of each rank", a.file,
                               b.file, a.rank));
        if (a.ranks != b.ranks)
            refuse(fmt::format("{} is of {} ranks and {} of {}; give files of one communicator",
                               a.file, a.ranks, b.file, b.ranks));
    }
    std::string text;
    std::set<int> there;
    for (const Flight &flight : flights) {
        there.insert(flight.rank);
        const auto open = std::ranges::count_if(
            flight.operations, [](const auto &each) { return !each.second.completed; });
        text += fmt::format("rank {}: {} operations started, {} of them not complete; {}\n",
                            flight.rank, flight.started, open,
                            flight.why.empty() ? flight.status : flight.status + ": " + flight.why);
    }
    std::vector<int> missing;
    std::size_t missing_count = 0;
    for (int rank = 0; rank < flights.front().ranks; ++rank) {
        if (there.contains(rank)) continue;
        ++missing_count;
        if (missing.size() < max_named) missing.push_back(rank);
    }
    if (missing_count > 0)
        text += fmt::format("No file of {}{}: dead, stopped, or not notified of the failure.\n",
                            ranks_text(missing),
                            missing_count > missing.size()
                                ? fmt::format(" and {} more", missing_count - missing.size())
                                : "");
    const auto has_messages = [](const Flight &flight) {
        return std::ranges::any_of(flight.operations,
                                   [](const auto &each) { return is_message(each.second); });
    };
    if (std::ranges::any_of(flights, has_messages)) return text + operations_by_rank(flights);
    for (const auto find : {find_disagreement, find_ranks_behind, find_ranks_waiting})
        if (const std::optional<std::string> verdict = find(flights)) return text + *verdict + "\n";
    return text + "All that was started is complete on every rank that wrote.\n";
}

std::string report_flights(const std::vector<std::string> &files) {
    std::vector<Flight> flights;
    for (const std::string &file : files) {
        std::ifstream stream(file, std::ios::binary);
        std::string text(max_file_bytes + 1, '\0');
        stream.read(text.data(), static_cast<std::streamsize>(text.size()));
        if (stream.bad() || (stream.gcount() == 0 && !stream.eof())) refuse("cannot read " + file);
        text.resize(static_cast<std::size_t>(stream.gcount()));
        flights.push_back(parse_flight(file, text));
    }
    return compare_flights(std::move(flights));
}

}  // namespace vescomm::internal
