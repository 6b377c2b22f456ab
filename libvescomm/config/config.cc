// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace vescomm {

namespace {

std::string variable_name(std::string_view member) {
    std::string name = "VESCOMM_";
    for (const char letter : member)
        name += letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
    return name;
}

void parse(const std::string &name, std::string_view text, double &value) {
    double parsed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(parsed) ||
        parsed <= 0)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    name + "=" + std::string(text) +
                        " is not a number above 0; give one, such as 30 or 0.5");
    value = parsed;
}

void parse(const std::string &, std::string_view text, std::string &value) {
    value = text;
}

template <typename Value>
std::string fallback_text(const Value &value) {
    if constexpr (std::is_same_v<Value, double>) {
        char digits[32];
        const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
        return std::string(digits, end);
    } else {
        return value;
    }
}

}  // namespace

Environment process_environment() {
    return [](const char *name) { return std::getenv(name); };
}

Config read_config(const Environment &environment) {
    Config config;
#define VESCOMM_READ(type, member, fallback, unit, values, what) \
    if (const std::string name = variable_name(#member); true)   \
        if (const char *text = environment(name.c_str());        \
            text != nullptr && *text != '\0') /* not set */      \
            parse(name, text, config.member);
    VESCOMM_VARIABLES(VESCOMM_READ)
#undef VESCOMM_READ
    static constexpr std::string_view known[] = {"auto", "thread", "inline"};
    if (std::find(std::begin(known), std::end(known), config.progress) == std::end(known))
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "VESCOMM_PROGRESS=" + config.progress + " is none of auto, thread and inline");
    return config;
}

std::span<const VariableHelp> variables() {
    static const std::vector<VariableHelp> table = [] {
        const Config config;
        return std::vector<VariableHelp>{
#define VESCOMM_HELP(type, member, fallback, unit, values, what) \
    {variable_name(#member), fallback_text(config.member), unit, values, what},
            VESCOMM_VARIABLES(VESCOMM_HELP)
#undef VESCOMM_HELP
        };
    }();
    return table;
}

}  // namespace vescomm
