// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <vector>

namespace vescomm::internal {
namespace {

int count(std::vector<std::string> usable) {
    return count_cores(usable);
}

TEST(Cores, SharedCoresAreCountedOnce) {
    EXPECT_EQ(count({"3", "3"}), 2);
    EXPECT_EQ(count({"1", "2"}), 2);  // each rank bound to a core of its own
    EXPECT_EQ(count({"1", "1"}), 1);  // both bound to one
    EXPECT_EQ(count({"f0001", "0f"}), 9);
}

TEST(Cores, CountIsAtLeastOne) {
    EXPECT_EQ(count({}), 1);
    EXPECT_EQ(count({"", "0"}), 1);
}

TEST(Cores, MalformedListsAreIgnored) {
    EXPECT_EQ(count({"3", "xyz", std::string(1000, 'f'), "-1"}), 2);
}

TEST(Cores, UsableCoresFollowTheAffinity) {
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    EXPECT_EQ(count({usable_cores()}), CPU_COUNT(&before));
    int last = 0;
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &before)) last = core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(count({usable_cores()}), 1);
    EXPECT_EQ(usable_cores().size(), static_cast<std::size_t>(last / 4 + 1));
    sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace vescomm::internal
