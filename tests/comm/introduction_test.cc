// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/introduction.h"

#include <gtest/gtest.h>

namespace vescomm {
namespace {

TEST(Introductions, ComeBackAsTheyWere) {
    for (const Introduction &one : {Introduction{}, Introduction{"host", "f3", "", "no"},
                                    Introduction{"", "", "all_reduce=flat", "yes"}})
        EXPECT_EQ(Introduction::parse(one.text()), one);
}

TEST(Introductions, ThatAreCutAreReadAsFarAsTheyGo) {
    const std::string text = Introduction{"host", "f3", "all_reduce=flat", "no"}.text();
    for (std::size_t bytes = 0; bytes < text.size(); ++bytes)
        EXPECT_TRUE(
            std::string("host").starts_with(Introduction::parse(text.substr(0, bytes)).node));
    EXPECT_EQ(Introduction::parse(text.substr(0, 7)), (Introduction{"host", "f3", "", ""}));
}

}  // namespace
}  // namespace vescomm
