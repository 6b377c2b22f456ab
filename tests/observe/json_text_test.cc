// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace vescomm::internal {
namespace {

using nlohmann::json;

// Checks UTF-8 with another implementation.
bool is_valid(const std::string &text) {
    try {
        (void)json(text).dump();
        return true;
    } catch (const json::type_error &) {
        return false;
    }
}

TEST(QuotedJson, RestoresTextsOfAnyTwoBytes) {
    for (int first = 0; first < 256; ++first) {
        for (int second = 0; second < 256; ++second) {
            const std::string text{static_cast<char>(first), static_cast<char>(second), 'x'};
            const std::string read = json::parse(quoted_json(text));
            EXPECT_EQ(read == text, is_valid(text)) << testing::PrintToString(text);
        }
    }
}

TEST(QuotedJson, RestoresExactlyTheTextsThatAreUtf8) {
    std::mt19937 random(1);
    for (int round = 0; round < 100'000; ++round) {
        std::string text;
        // Bytes at the edges of the byte ranges of UTF-8.
        static constexpr unsigned char bytes[] = {
            0x00, 0x22, 0x5c, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2,
            0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
        for (unsigned i = 0; i < 1 + round % 5u; ++i)
            text += static_cast<char>(bytes[random() % sizeof bytes]);
        const std::string read = json::parse(quoted_json(text));
        ASSERT_EQ(read == text, is_valid(text)) << testing::PrintToString(text);
    }
}

TEST(JsonNumber, RestoresFiniteNumbersAndWritesNullForOthers) {
    for (const double number : {0.0, -1.5, 1e300, 1e-300, 1.7e9 + 0.123, 1.0 / 3, -0.0})
        EXPECT_EQ(json::parse(json_number(number)).get<double>(), number);
    EXPECT_TRUE(json::parse(json_number(std::nan(""))).is_null());
    EXPECT_TRUE(json::parse(json_number(-std::numeric_limits<double>::infinity())).is_null());
}

}  // namespace
}  // namespace vescomm::internal
