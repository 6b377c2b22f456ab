// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "config/spelling.h"

namespace vescomm::internal {
namespace {

Config read(const std::map<std::string, std::string> &given) {
    return read_config([&](const char *name) {
        const auto found = given.find(name);
        return found == given.end() ? nullptr : found->second.c_str();
    });
}

std::string refusal(const std::string &name, const std::string &value) {
    try {
        read({{name, value}});
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        return error.what();
    }
    return "";
}

std::string hint(const std::string &name) {
    const std::vector<std::string> sentences = unknown_variables(std::vector{name});
    return sentences.empty() ? "" : sentences[0];
}

TEST(Config, HasADefaultForEverything) {
    const Config config = read({});
    EXPECT_EQ(config.timeout_seconds, 300);
    EXPECT_EQ(config.progress, "auto");
    EXPECT_EQ(config.node, "");
}

TEST(Config, ReadsSetVariables) {
    const Config config = read({{"VESCOMM_TIMEOUT_SECONDS", "0.5"},
                                {"VESCOMM_PROGRESS", "inline"},
                                {"VESCOMM_NODE", "n 1"}});
    EXPECT_EQ(config.timeout_seconds, 0.5);
    EXPECT_EQ(config.progress, "inline");
    EXPECT_EQ(config.node, "n 1");
}

TEST(Config, IgnoresEmptyVariables) {
    EXPECT_EQ(read({{"VESCOMM_TIMEOUT_SECONDS", ""}}).timeout_seconds, 300);
    EXPECT_EQ(read({{"VESCOMM_PROGRESS", ""}}).progress, "auto");
}

TEST(Config, RefusesMalformedValuesAndNamesTheAllowedOnes) {
    for (const char *value :
         {"0", "-1", "12abc", " 5", "5 ", "inf", "nan", "1e999", "five", "0x10"})
        EXPECT_EQ(refusal("VESCOMM_TIMEOUT_SECONDS", value),
                  std::string("VESCOMM_TIMEOUT_SECONDS=") + value +
                      " is not a number above 0; give seconds, such as 30 or 0.5");
    for (const char *value : {"Auto", "threads", "auto,", "auto, thread", ","})
        EXPECT_EQ(refusal("VESCOMM_PROGRESS", value),
                  std::string("VESCOMM_PROGRESS=") + value +
                      " is none of its values; there is: auto, thread, inline");
}

TEST(Variables, AreDescribedAndNamedOnce) {
    std::map<std::string, int> names;
    for (const Variable &variable : variables()) {
        EXPECT_TRUE(variable.name.starts_with("VESCOMM_"));
        EXPECT_EQ(++names[variable.name], 1) << variable.name;
        EXPECT_FALSE(variable.what.empty()) << variable.name;
        EXPECT_FALSE(variable.values.empty()) << variable.name;
        EXPECT_TRUE(variable.what.ends_with('.')) << variable.name;
    }
}

TEST(Variables, KnownAndForeignVariablesGetNoWarning) {
    std::vector<std::string> names = {"PATH",        "UCX_TLS",         "VESC",
                                      "vescomm_log", "VESCOMM_UCX_TLS", "VESCOMM_PERF_MIN_BW"};
    for (const Variable &variable : variables()) names.push_back(variable.name);
    EXPECT_EQ(unknown_variables(names), std::vector<std::string>());
}

TEST(Variables, MisspeltVariablesGetASuggestion) {
    for (const auto &[given, meant] :
         std::map<std::string, std::string>{{"VESCOMM_TIMEOUT_SECOND", "VESCOMM_TIMEOUT_SECONDS"},
                                            {"VESCOMM_TIMEOUT", "VESCOMM_TIMEOUT_SECONDS"},
                                            {"VESCOMM_TIMEOUT_SEC", "VESCOMM_TIMEOUT_SECONDS"},
                                            {"VESCOMM_TIMOEUT_SECONDS", "VESCOMM_TIMEOUT_SECONDS"},
                                            {"VESCOM_TIMEOUT_SECONDS", "VESCOMM_TIMEOUT_SECONDS"},
                                            {"VESCOMM_LOG_LEVEL", "VESCOMM_LOG"},
                                            {"VESCOMM_RNAKS", "VESCOMM_RANKS"},
                                            {"VESCOMM_PROGRES", "VESCOMM_PROGRESS"}})
        EXPECT_EQ(hint(given), given +
                                   " is not a variable of vescomm and has no effect; did you "
                                   "mean " +
                                   meant + "?");
}

TEST(Variables, UnknownVariablesWithoutANearNameGetNoSuggestion) {
    for (const char *given : {"VESCOMM_FOO", "VESCOMM_ROOT", "VESCOMM_", "VESCOMM",
                              "VESCOMM_WORLD_SIZE", "VESCOMM_HOME"})
        EXPECT_EQ(hint(given), std::string(given) +
                                   " is not a variable of vescomm and has no "
                                   "effect; vescomm-info lists those there are");
    EXPECT_NE(hint("VESCOMM_" + std::string(1 << 20, 'X')), "");
}

TEST(Variables, ListsNonEmptyVariablesOfThisProcess) {
    setenv("VESCOMM_TEST_CONFIG_SET", "1", 1);
    setenv("VESCOMM_TEST_CONFIG_EMPTY", "", 1);
    const std::vector<std::string> names = process_variable_names();
    EXPECT_EQ(std::ranges::count(names, "VESCOMM_TEST_CONFIG_SET"), 1);
    EXPECT_EQ(std::ranges::count(names, "VESCOMM_TEST_CONFIG_EMPTY"), 0);
    EXPECT_STREQ(process_environment()("VESCOMM_TEST_CONFIG_SET"), "1");
    unsetenv("VESCOMM_TEST_CONFIG_SET");
    unsetenv("VESCOMM_TEST_CONFIG_EMPTY");
}

TEST(Spelling, ChoosesTheNearestName) {
    const std::vector<std::string> known = {"VESCOMM_RANK", "VESCOMM_RANKS"};
    EXPECT_EQ(nearest("VESCOMM_RNAK", known), "VESCOMM_RANK");
    EXPECT_EQ(nearest("VESCOMM_RNAKS", known), "VESCOMM_RANKS");
    EXPECT_EQ(nearest("", known), "");
}

}  // namespace
}  // namespace vescomm::internal
