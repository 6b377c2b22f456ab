// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Notes between ranks about their waits, as bytes.
#include "comm/wait_note.h"

#include <gtest/gtest.h>

#include <utility>

#include "bootstrap/frame.h"

namespace vescomm::internal {
namespace {

using Ranks = std::vector<int>;

TEST(WaitNote, SurvivesItsEncoding) {
    for (const WaitNote &note :
         {WaitNote{WaitNote::Kind::question, {7, 9}},
          WaitNote{WaitNote::Kind::absent, {7, 0xffffffff}},
          WaitNote{WaitNote::Kind::waits, {0, 1}, {0, 5, 7}},
          WaitNote{WaitNote::Kind::elsewhere, {0, 1}, {}, {3, 2}, "barrier"},
          WaitNote{WaitNote::Kind::elsewhere, {0, 1}, {6, 2}, {3, 2}, "barrier"},
          WaitNote{WaitNote::Kind::elsewhere, {0, 1}, {}, {control_channel, 2}}})
        EXPECT_EQ(decode_wait_note(encode(note), 8), note);
    for (const WaitNote &many :
         {WaitNote{WaitNote::Kind::waits, {0, 1}, Ranks(5000, 3)},
          WaitNote{
              WaitNote::Kind::elsewhere, {0, 1}, Ranks(5000, 3), {3, 2}, std::string(5000, 'a')}}) {
        const auto read = decode_wait_note(encode(many), 8);
        ASSERT_TRUE(read);
        EXPECT_EQ(read->awaited.size(), max_noted_ranks);
        EXPECT_LE(encode(many).size(), max_note_bytes);
    }
}

TEST(WaitNote, IsRejectedIfItIsMalformed) {
    const std::string note = encode({WaitNote::Kind::waits, {1, 2}, {3}});
    EXPECT_TRUE(decode_wait_note(note, 4));
    EXPECT_FALSE(decode_wait_note(note, 3)) << "there is no rank 3";
    for (std::size_t size = 0; size < note.size(); ++size)
        EXPECT_FALSE(decode_wait_note(note.substr(0, size), 4)) << size;
    EXPECT_FALSE(decode_wait_note(note + "x", 4));
    for (const char kind : {0, 5, -1}) EXPECT_FALSE(decode_wait_note(kind + note.substr(1), 4));
    // Only a rank that waits names others.
    for (const char kind : {1, 2}) EXPECT_FALSE(decode_wait_note(kind + note.substr(1), 4));
    // More ranks than a note has: the count is behind the kind and the run.
    std::string more = encode({WaitNote::Kind::waits, {1, 2}, Ranks(max_noted_ranks, 3)});
    more[9] = 1;
    EXPECT_FALSE(decode_wait_note(more + note.substr(13), 4));
}

TEST(WaitNote, HasAShortPrintableText) {
    const auto read = [](std::string call) {
        return decode_wait_note(
            encode({WaitNote::Kind::elsewhere, {1, 2}, {}, {3, 4}, std::move(call)}), 4);
    };
    EXPECT_EQ(read("a\nb\x7f\xc3\xa4")->call, "a?b???");
    EXPECT_EQ(read(std::string(5000, 'a'))->call, std::string(max_noted_text, 'a'));

    const std::string note = encode({WaitNote::Kind::elsewhere, {1, 2}, {}, {3, 4}, "barrier"});
    EXPECT_TRUE(decode_wait_note(note, 4));
    EXPECT_FALSE(decode_wait_note(note + "\n", 4));
    EXPECT_FALSE(decode_wait_note(note + std::string(max_noted_text, 'a'), 4));
    for (std::size_t size = 0; size < 17; ++size)
        EXPECT_FALSE(decode_wait_note(note.substr(0, size), 4)) << size;
}

}  // namespace
}  // namespace vescomm::internal
