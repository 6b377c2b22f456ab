// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// HMAC-SHA256 against known values, and in several threads at once.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/frame.h"

namespace vescomm::internal {
namespace {

std::string hex(const FrameKey &hash) {
    std::string text;
    for (const unsigned char byte : hash) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", byte);
        text += digits;
    }
    return text;
}

// RFC 4231, test cases 1, 2 and 6.
TEST(KeyedHash, IsHmacSha256) {
    EXPECT_EQ(hex(keyed_hash(std::string(20, '\x0b'), "Hi There")),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(hex(keyed_hash("Jefe", "what do ya want for nothing?")),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(hex(keyed_hash(std::string(131, '\xaa'),
                             "Test Using Larger Than Block-Size Key - Hash Key First")),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(KeyedHash, AcceptsEmptyKeysAndBytes) {
    EXPECT_EQ(hex(keyed_hash({}, {})),
              "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

// All computations begin with copies of one context.
TEST(KeyedHash, IsTheSameInConcurrentThreads) {
    constexpr int threads = 4, keys = 2000;
    std::vector<FrameKey> expected;
    for (int key = 0; key < keys; ++key)
        expected.push_back(keyed_hash(std::to_string(key), "some bytes"));
    std::atomic<int> different{0};
    std::vector<std::thread> running;
    for (int thread = 0; thread < threads; ++thread)
        running.emplace_back([&] {
            for (int key = 0; key < keys; ++key)
                if (keyed_hash(std::to_string(key), "some bytes") !=
                    expected[static_cast<std::size_t>(key)])
                    ++different;
        });
    for (std::thread &thread : running) thread.join();
    EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace vescomm::internal
