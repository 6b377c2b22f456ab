// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The table of settings (config/config.h) and the levels of the log. The input is an environment: a
// line NAME=VALUE for each variable.
//
// Invariants: an accepted setting is of its kind, and its text parses to the same value; a name
// like vescomm's that is no setting is reported in a sentence, and a setting never is.
#include "config/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "fuzz/fuzz.h"
#include "observe/log.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

// Each variable is compared with all settings.
constexpr std::size_t max_variables = 16;

using Variables = std::map<std::string, std::string, std::less<>>;

Environment environment(const Variables &variables) {
    return [&variables](const char *name) -> const char * {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    };
}

std::string text_of(double value) {
    char digits[64];
    return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}
std::string text_of(const std::string &value) {
    return value;
}

void check_seconds(double value, std::string_view) {
    require(std::isfinite(value) && value > 0, "seconds are above 0");
}
void check_choice(const std::string &value, std::string_view values) {
    require(!value.empty() &&
                (", " + std::string(values) + ", ").find(", " + value + ", ") != std::string::npos,
            "a choice is one of its values");
}
void check_size(const std::string &value, std::string_view) {
    require(value == "auto" ||
                (!value.empty() && value.find_first_not_of("0123456789") == std::string::npos),
            "a size is auto or a number");
}
void check_text(const std::string &, std::string_view) {}

Variables settings_of(const Config &config) {
    Variables variables;
    std::size_t row = 0;
#define VESCOMM_CHECK(kind, member, fallback, unit, values, what) \
    check_##kind(config.member, values);                          \
    variables[vescomm::internal::variables()[row++].name] = text_of(config.member);
    VESCOMM_SETTINGS(VESCOMM_CHECK)
#undef VESCOMM_CHECK
    return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    Variables given;
    std::vector<std::string> names;
    while (!input.empty() && names.size() < max_variables) {
        std::string_view line = input.until('\n');
        line = line.substr(0, line.find('\0'));
        const std::string name(line.substr(0, line.find('=')));
        names.push_back(name);
        given[name] = line.substr(std::min(line.size(), name.size() + 1));
    }
    for (const std::string &name : names) {
        const auto is_setting = [&name](const Variable &variable) { return variable.name == name; };
        const bool reported = !unknown_variables({&name, 1}).empty();
        require(!reported || name.starts_with("VESCOM"), "only names like vescomm's are reported");
        require(!reported || std::ranges::none_of(variables(), is_setting), "a setting is known");
    }
    try {
        const Config config = read_config(environment(given));
        const Variables settings = settings_of(config);
        require(settings_of(read_config(environment(settings))) == settings,
                "the text of a setting parses to the same value");
        set_log_filter(config.log);
        require(log_enabled(LogLevel::error, "config"), "errors are always logged");
    } catch (const Error &error) {
        require(error.status == VESCOMM_ERROR_INVALID_ARGUMENT, "the variables are to blame");
        require(std::string_view(error.what()).starts_with("VESCOMM_"),
                "a sentence names the variable");
    }
    set_log_filter("warn");
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    std::string all;
    for (const Variable &variable : variables())
        if (variable.group == Variable::Group::setting)
            all += variable.name + "=" + variable.fallback + "\n";
    return {
        {"nothing", ""},
        {"all", all},
        {"numbers", "VESCOMM_TIMEOUT_SECONDS=1e-3\nVESCOMM_SILENCE_SECONDS=0.5\n"},
        {"not-numbers", "VESCOMM_TIMEOUT_SECONDS=12abc\n"},
        {"infinite", "VESCOMM_SILENCE_SECONDS=inf\n"},
        {"choices", "VESCOMM_PROGRESS=thread\nVESCOMM_REPRODUCIBLE=yes\n"},
        {"no-choice", "VESCOMM_PROGRESS=thread, inline\n"},
        {"log", "VESCOMM_LOG=warn,transport:debug,comm:error\n"},
        {"no-level", "VESCOMM_LOG=loud\n"},
        {"misspelt",
         "VESCOMM_TIMEOUT=1\nVESCOM_RANK=0\nVESCOMM_RANSK=2\nVESCOMM_UCX_TLS=tcp\n"
         "VESCOMM_LOG_LEVEL=x\nVESCOMM_=1\n"},
    };
}
