// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The table of cached calls finds what was added, beside a list that is searched from end to end.
#include "comm/call_sites.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace vescomm::internal {
namespace {

struct Entry {
    std::uint32_t hash = 0;
    int key = 0;  // entries with one key are equal, and have one hash
    bool present = false;
};

class CallSitesOf : public testing::TestWithParam<std::uint32_t> {};

// Few different hashes make long sequences of collisions, also over the end of the table.
TEST_P(CallSitesOf, FindWhatWasAdded) {
    const std::uint32_t hashes = GetParam();
    std::mt19937 random(hashes);
    CallSites sites;
    std::vector<Entry> entries(CallSites::max_indices);
    const auto hash_of_key = [hashes](int key) {
        return (static_cast<std::uint32_t>(key) % hashes) * 0x01000193U + 508;
    };
    for (int step = 0; step < 20'000; ++step) {
        const auto index = static_cast<CallSites::Index>(random() % entries.size());
        Entry &entry = entries[index];
        if (entry.present) {
            sites.remove(entry.hash, index);
            entry.present = false;
        } else {
            entry.key = static_cast<int>(random() % 200);
            entry.hash = hash_of_key(entry.key);
            sites.add(entry.hash, index);
            entry.present = true;
        }
        const int key = static_cast<int>(random() % 200);
        const auto has_key = [&](CallSites::Index at) {
            EXPECT_TRUE(entries[at].present) << "index " << int{at} << ", step " << step;
            return entries[at].key == key;
        };
        bool expected = false;
        for (const Entry &other : entries) expected |= other.present && other.key == key;
        const CallSites::Index found = sites.find(hash_of_key(key), has_key);
        ASSERT_EQ(found != CallSites::none, expected) << "key " << key << ", step " << step;
    }
    for (std::size_t i = 0; i < entries.size(); ++i)
        if (entries[i].present) sites.remove(entries[i].hash, static_cast<CallSites::Index>(i));
    for (int key = 0; key < 200; ++key)
        EXPECT_EQ(sites.find(hash_of_key(key), [](CallSites::Index) { return true; }),
                  CallSites::none);
}

INSTANTIATE_TEST_SUITE_P(Hashes, CallSitesOf, testing::Values(1, 2, 7, 60, 1'000'000));

}  // namespace
}  // namespace vescomm::internal
