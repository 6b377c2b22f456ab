// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/hardware.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "topology/cores.h"

namespace vescomm::internal {
namespace {

TEST(Hardware, CountsCoresThreadsAndCaches) {
    const Hardware hardware = read_hardware(
        "pack:2 [numa] l3:2(size=33554432) l2:4(size=1048576) "
        "core:1 pu:2");
    EXPECT_EQ(hardware.cores, 16);
    EXPECT_EQ(hardware.threads, 32);
    EXPECT_EQ(hardware.numa_nodes, 2);
    EXPECT_EQ(hardware.caches,
              (std::vector<Hardware::Caches>{{2, 1 << 20, 16, 1}, {3, 32 << 20, 4, 4}}));
    EXPECT_EQ(describe(hardware),
              "16 cores with 32 threads, 2 NUMA nodes\n"
              "L2: 16 of 1 MiB, each for 1 core\n"
              "L3: 4 of 32 MiB, each for 4 cores\n");
}

TEST(Hardware, MayHaveNoCaches) {
    EXPECT_EQ(describe(read_hardware("core:1 pu:1")), "1 core with 1 thread, 1 NUMA node\n");
}

TEST(Hardware, IsRestrictedToTheAffinityOfThisProcess) {
    const std::string usable = usable_cores();
    EXPECT_EQ(read_hardware().threads, count_cores({&usable, 1}));
}

TEST(Hardware, RefusesAMalformedDescription) {
    EXPECT_THROW(read_hardware("nonsense:2"), Error);
}

}  // namespace
}  // namespace vescomm::internal
