// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace vescomm::internal {
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

TEST(FileName, ExpandsRankCommunicatorAndProcess) {
    const Writer writer{.rank = 3, .ranks = 8, .communicator = 2};
    EXPECT_EQ(file_name("/tmp/%r.%c.%p.100%%", writer, ""),
              "/tmp/3.2." + std::to_string(getpid()) + ".100%");
    EXPECT_EQ(file_name("plain", {.rank = 0, .ranks = 1}, ""), "plain");
}

TEST(FileName, RefusesUnknownPlaceholders) {
    for (const char *pattern : {"%", "%q%r", "%r%", "%R"})
        EXPECT_NE(refusal(pattern, 2).find("after a % comes r"), std::string::npos) << pattern;
}

TEST(FileName, RequiresTheRankIfThereAreSeveral) {
    for (const char *pattern : {"flight", "flight.%p.%c", "%%r"})
        EXPECT_NE(refusal(pattern, 2).find("put %r into the name"), std::string::npos) << pattern;
}

class WriteFile : public testing::Test {
protected:
    WriteFile() {
        char name[] = "/tmp/vescomm-file-test-XXXXXX";
        if (mkdtemp(name) != nullptr) folder_ = name;
    }
    ~WriteFile() override { std::filesystem::remove_all(folder_); }

    std::string in_folder(const std::string &name) const { return (folder_ / name).string(); }
    auto files() const { return std::distance(std::filesystem::directory_iterator(folder_), {}); }
    static std::string text_of(const std::string &name) {
        std::ifstream stream(name);
        return {std::istreambuf_iterator<char>(stream), {}};
    }
    static vescomm_status_t status_of_writing(const std::string &name) {
        try {
            write_file(name, "text", "it");
        } catch (const Error &error) {
            return error.status;
        }
        return VESCOMM_OK;
    }

    std::filesystem::path folder_;
};

TEST_F(WriteFile, ReplacesFilesAndLeavesNoTemporaryFiles) {
    const std::string name = in_folder("file");
    write_file(name, "first, and longer", "it");
    write_file(name, "second", "it");
    EXPECT_EQ(text_of(name), "second");
    EXPECT_THROW(write_file(in_folder("none/file"), "", "it"), Error);
    try {
        write_file("", "text", "it");
        ADD_FAILURE() << "a file without a name was written";
    } catch (const Error &error) {
        EXPECT_STREQ(error.what(), "cannot write it to \"\": No such file or directory");
    }
    std::filesystem::create_directory(in_folder("taken"));
    EXPECT_THROW(write_file(in_folder("taken"), "", "it"), Error);
    EXPECT_EQ(files(), 2);
}

TEST_F(WriteFile, WritesTextsLargerThanAPipe) {
    std::string text;
    for (int i = 0; text.size() < (4u << 20); ++i) text += std::to_string(i) + " ";
    write_file(in_folder("file"), text, "it");
    EXPECT_EQ(text_of(in_folder("file")), text);
}

// Before 0.1 the temporary file was NAME.PID.part, a predictable name.
TEST_F(WriteFile, DoesNotFollowSymbolicLinksAtPredictableNames) {
    const std::string victim = in_folder("victim");
    std::ofstream(victim) << "precious";
    const std::string name = in_folder("file");
    std::filesystem::create_symlink(victim, name + "." + std::to_string(getpid()) + ".part");
    std::filesystem::create_symlink(victim, name + ".part");
    write_file(name, "text", "it");
    EXPECT_EQ(text_of(victim), "precious");
    EXPECT_EQ(text_of(name), "text");
    EXPECT_EQ(files(), 4);
}

TEST_F(WriteFile, ReplacesASymbolicLinkAndNotItsTarget) {
    const std::string victim = in_folder("victim");
    std::ofstream(victim) << "precious";
    std::filesystem::create_symlink(victim, in_folder("file"));
    write_file(in_folder("file"), "text", "it");
    EXPECT_EQ(text_of(victim), "precious");
    EXPECT_FALSE(std::filesystem::is_symlink(in_folder("file")));
    EXPECT_EQ(text_of(in_folder("file")), "text");
}

// Replacing /dev/null with a file would harm the whole machine.
TEST_F(WriteFile, RefusesToReplaceAPipe) {
    const std::string pipe = in_folder("pipe");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    std::filesystem::create_symlink(pipe, in_folder("link"));
    EXPECT_EQ(status_of_writing(pipe), VESCOMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(status_of_writing(in_folder("link")), VESCOMM_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(std::filesystem::is_fifo(pipe));
    EXPECT_EQ(files(), 2);
}

TEST_F(WriteFile, HonoursTheUmask) {
    const mode_t before = umask(027);
    write_file(in_folder("file"), "text", "it");
    umask(before);
    struct stat status {};
    ASSERT_EQ(stat(in_folder("file").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0640u);
}

}  // namespace
}  // namespace vescomm::internal
