// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "api/last_error.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "vescomm/vescomm.h"

namespace vescomm::internal {
namespace {

TEST(LastError, IsTheLastSentenceOfThisThread) {
    set_last_error("first");
    std::thread([] { EXPECT_STREQ(vescomm_get_last_error(), ""); }).join();
    EXPECT_STREQ(vescomm_get_last_error(), "first");
    set_last_error("second: ", "with a reason");
    EXPECT_STREQ(vescomm_get_last_error(), "second: with a reason");
}

TEST(LastError, KeepsASentenceOfTheMaximumSize) {
    const std::string sentence(max_error_bytes, 'a');
    set_last_error(sentence.c_str());
    EXPECT_EQ(vescomm_get_last_error(), sentence);
}

// Characters of 1 to 4 bytes, shifted so that the cut falls on each of their bytes.
TEST(LastError, CutsALongSentenceBetweenCharacters) {
    for (const std::string character : {"a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x90\x9f"}) {
        for (std::size_t before = 0; before < 8; ++before) {
            std::string sentence(before, '.');
            while (sentence.size() <= max_error_bytes) sentence += character;
            set_last_error("", sentence.c_str());
            const std::string kept = vescomm_get_last_error();
            ASSERT_TRUE(kept.ends_with("...")) << kept;
            const std::string text = kept.substr(0, kept.size() - 3);
            EXPECT_EQ(text, sentence.substr(0, text.size()));
            EXPECT_EQ((text.size() - before) % character.size(), 0u);
            EXPECT_LE(kept.size(), static_cast<std::size_t>(max_error_bytes));
            EXPECT_GT(kept.size(), static_cast<std::size_t>(max_error_bytes) - 4);
        }
    }
}

}  // namespace
}  // namespace vescomm::internal
