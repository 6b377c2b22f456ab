// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace vescomm {
namespace {

std::string refusal(const std::string &pattern, int ranks) {
    try {
        file_name(pattern, {.rank = 0, .ranks = ranks}, "NAME=");
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        return error.what();
    }
    return "";
}

TEST(FileName, SaysWhoWrites) {
    const Writer writer{.rank = 3, .ranks = 8, .communicator = 2};
    EXPECT_EQ(file_name("/tmp/%r.%c.%p.100%%", writer, ""),
              "/tmp/3.2." + std::to_string(getpid()) + ".100%");
    EXPECT_EQ(file_name("plain", {.rank = 0, .ranks = 1}, ""), "plain");
}

TEST(FileName, RefusesWhatItDoesNotKnow) {
    for (const char *pattern : {"%", "%q%r", "%r%", "%R"})
        EXPECT_NE(refusal(pattern, 2).find("after a % comes r"), std::string::npos) << pattern;
}

TEST(FileName, TellsRanksApart) {
    for (const char *pattern : {"flight", "flight.%p.%c", "%%r"})
        EXPECT_NE(refusal(pattern, 2).find("put %r into the name"), std::string::npos) << pattern;
}

TEST(WriteFile, ReplacesAndLeavesNothingElse) {
    char folder[] = "/tmp/vescomm-file-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string name = std::string(folder) + "/file";
    write_file(name, "first, and longer", "it");
    write_file(name, "second", "it");
    std::ifstream stream(name);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), "second");
    EXPECT_THROW(write_file(std::string(folder) + "/none/file", "", "it"), Error);
    std::filesystem::create_directory(std::string(folder) + "/taken");
    EXPECT_THROW(write_file(std::string(folder) + "/taken", "", "it"), Error);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace vescomm
