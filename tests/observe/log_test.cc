// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/log.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace vescomm::internal {
namespace {

// Collects the lines that are logged during its lifetime.
class Lines {
public:
    explicit Lines(std::string_view filter) {
        set_log_filter(filter);
        set_log_sink(
            [](void *lines, std::int32_t level, const char *line) {
                static_cast<Lines *>(lines)->all.push_back(std::to_string(level) + " " + line);
            },
            this);
    }
    ~Lines() {
        set_log_sink(nullptr, nullptr);
        set_log_filter("warn");
    }

    std::vector<std::string> all;
};

TEST(Log, LinesHaveLevelRankAreaAndText) {
    Lines lines("info");
    log(LogLevel::info, "launch", 2, 4, "started by torchrun");
    ASSERT_EQ(lines.all.size(), 1u);
    EXPECT_EQ(lines.all[0], "2 vescomm info 2/4 launch: started by torchrun");
}

TEST(Log, FiltersByTheLevelOfTheArea) {
    Lines lines("error,comm:debug");
    log(LogLevel::warn, "transport", 0, 1, "left out");
    log(LogLevel::error, "transport", 0, 1, "one");
    log(LogLevel::debug, "comm", 0, 1, "two");
    EXPECT_EQ(lines.all.size(), 2u);
    EXPECT_TRUE(log_enabled(LogLevel::debug, "comm"));
    EXPECT_FALSE(log_enabled(LogLevel::warn, "transport"));
}

TEST(Log, WritesToStandardErrorWithoutASink) {
    { const Lines removed("warn"); }
    testing::internal::CaptureStderr();
    log(LogLevel::warn, "config", 0, 2, "said");
    log(LogLevel::info, "config", 0, 2, "left out");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "vescomm warn 0/2 config: said\n");
}

TEST(Log, KeepsItsLevelsWhenAFilterIsRefused) {
    Lines lines("debug");
    EXPECT_THROW(set_log_filter("warn,comm:loud"), Error);
    EXPECT_TRUE(log_enabled(LogLevel::debug, "comm"));
}

}  // namespace
}  // namespace vescomm::internal
