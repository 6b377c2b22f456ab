// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_info.h"

#include <gtest/gtest.h>

namespace vescomm::internal {
namespace {

TEST(PeerInfo, ParseRestoresText) {
    for (const PeerInfo &one :
         {PeerInfo{}, PeerInfo{"host", "f3", "", "no", "0", "its main thread"},
          PeerInfo{"", "", "all_reduce=flat", "yes", "4096", ""}})
        EXPECT_EQ(PeerInfo::parse(one.text()), one);
}

TEST(PeerInfo, TruncatedTextIsReadAsFarAsItGoes) {
    const std::string text =
        PeerInfo{"host", "f3", "all_reduce=flat", "no", "8192", "its main thread"}.text();
    for (std::size_t bytes = 0; bytes < text.size(); ++bytes)
        EXPECT_TRUE(std::string("host").starts_with(PeerInfo::parse(text.substr(0, bytes)).node));
    EXPECT_EQ(PeerInfo::parse(text.substr(0, 7)), (PeerInfo{"host", "f3", "", "", "", ""}));
}

}  // namespace
}  // namespace vescomm::internal
