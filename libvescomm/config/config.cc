// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "config/spelling.h"

namespace vescomm::internal {

namespace {

using Group = Variable::Group;

std::string variable_name(std::string_view member) {
    std::string name = "VESCOMM_";
    for (const char letter : member)
        name += letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
    return name;
}

[[noreturn]] void refuse(const std::string &name, std::string_view given, const std::string &why) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, name + "=" + std::string(given) + " is " + why);
}

// A parser for each kind of setting. Arguments: name, given text, and the column `values`.

double parse_seconds(const std::string &name, std::string_view given, std::string_view) {
    double parsed = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), parsed);
    if (error != std::errc() || end != given.data() + given.size() || !std::isfinite(parsed) ||
        parsed <= 0)
        refuse(name, given, "not a number above 0; give seconds, such as 30 or 0.5");
    return parsed;
}

std::string parse_choice(const std::string &name, std::string_view given, std::string_view values) {
    constexpr std::string_view between = ", ";
    for (std::size_t at = 0; at < values.size();) {
        const std::size_t end = std::min(values.find(between, at), values.size());
        if (values.substr(at, end - at) == given) return std::string(given);
        at = end + between.size();
    }
    refuse(name, given, "none of its values; there is: " + std::string(values));
}

std::string parse_size(const std::string &name, std::string_view given, std::string_view) {
    std::uint64_t parsed = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), parsed);
    if (given != "auto" && (error != std::errc() || end != given.data() + given.size()))
        refuse(name, given, "neither auto nor a number of bytes, such as 1073741824");
    return std::string(given);
}

std::string parse_text(const std::string &, std::string_view given, std::string_view) {
    return std::string(given);
}

std::string fallback_text(double value) {
    char digits[32];
    return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

std::string fallback_text(const std::string &value) {
    return value;
}

}  // namespace

Environment process_environment() {
    return [](const char *name) { return std::getenv(name); };
}

Config read_config(const Environment &environment) {
    Config config;
#define VESCOMM_READ(kind, member, fallback, unit, values, what)                               \
    if (const std::string name = variable_name(#member); true)                                 \
        if (const char *given = environment(name.c_str()); given != nullptr && *given != '\0') \
            config.member = parse_##kind(name, given, values);
    VESCOMM_SETTINGS(VESCOMM_READ)
#undef VESCOMM_READ
    return config;
}

std::span<const Variable> variables() {
    // Never destroyed: threads may create communicators while the process exits.
    static const auto &table = *new std::vector<Variable>([] {
        const Config config;
        return std::vector<Variable>{
#define VESCOMM_ROW(kind, member, fallback, unit, values, what) \
    {Group::setting, variable_name(#member), fallback_text(config.member), unit, values, what},
            VESCOMM_SETTINGS(VESCOMM_ROW)
#undef VESCOMM_ROW
            // Read in bootstrap/launch.cc, together with the variables of other launchers.
            {Group::place, "VESCOMM_RANK", "", "", "0 to VESCOMM_RANKS - 1",
             "The rank of this process."},
            {Group::place, "VESCOMM_RANKS", "", "", "1 and more", "Number of ranks of the job."},
            {Group::place, "VESCOMM_ADDRESS", "", "", "HOST:PORT",
             "The address at which rank 0 listens."},
            {Group::place, "VESCOMM_PORT", "", "", "1 to 65535",
             "The port alone, where a launcher names the host."},
            {Group::place, "VESCOMM_SECRET", "", "", "any text",
             "Shared secret of all ranks; a process without it cannot join."},
            {Group::place, "VESCOMM_LISTEN_DESCRIPTOR", "", "", "0 and more",
             "On rank 0: descriptor of a socket that listens at the address. Launchers set it."},
            {Group::prefix, "VESCOMM_UCX_", "", "", "as in UCX",
             "A variable of UCX that applies to vescomm only."},
            {Group::prefix, "VESCOMM_PERF_", "", "", "see perf.md",
             "Variables of vescomm_perf and of its workers."},
            {Group::prefix, "VESCOMM_TEST_", "", "", "see the tests", "Variables of the tests."},
        };
    }());
    return table;
}

std::vector<std::string> process_variable_names() {
    std::vector<std::string> names;
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view variable = *entry;
        const std::size_t equals = variable.find('=');
        if (equals + 1 < variable.size()) names.emplace_back(variable.substr(0, equals));
    }
    return names;
}

std::vector<std::string> unknown_variables(std::span<const std::string> names) {
    std::vector<std::string> known;
    for (const Variable &variable : variables())
        if (variable.group != Group::prefix) known.push_back(variable.name);
    const auto is_known = [](const std::string &name) {
        return std::ranges::any_of(variables(), [&](const Variable &variable) {
            return variable.group == Group::prefix ? name.starts_with(variable.name)
                                                   : name == variable.name;
        });
    };
    std::vector<std::string> sentences;
    for (const std::string &name : names) {
        // One M suffices: no other program has variables that begin with VESCOM.
        if (!name.starts_with("VESCOM") || is_known(name)) continue;
        const std::string meant = nearest(name, known);
        sentences.push_back(
            name + " is not a variable of vescomm and has no effect; " +
            (meant.empty() ? "vescomm-info lists those there are" : "did you mean " + meant + "?"));
    }
    std::ranges::sort(sentences);
    return sentences;
}

}  // namespace vescomm::internal
