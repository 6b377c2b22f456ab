// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory that a process can still allocate according to /proc and /sys, which the test replaces by
// a folder of its own.
#include "transport/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace vescomm::internal {
namespace {

constexpr std::uint64_t mebibyte = 1 << 20;
constexpr std::uint64_t machine = 1000 * mebibyte;

class FreeMemory : public testing::Test {
protected:
    FreeMemory() {
        char name[] = "/tmp/vescomm-free-memory-test-XXXXXX";
        if (mkdtemp(name) != nullptr) root_ = name;
        write("/proc/meminfo", "MemTotal: 9999999 kB\nMemFree: 5 kB\nMemAvailable: " +
                                   std::to_string((machine - 24 * mebibyte) / 1024) +
                                   " kB\nSwapFree: " + std::to_string(24 * 1024) + " kB\n");
    }
    ~FreeMemory() override { std::filesystem::remove_all(root_); }

    void write(const std::string &name, const std::string &text) const {
        const std::filesystem::path path = root_.string() + name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    // A group of version 1, below the mount of its controller.
    void group_1(const std::string &group, std::uint64_t limit, std::uint64_t used,
                 std::uint64_t cache = 0) const {
        const std::string folder = "/sys/fs/cgroup/memory" + group;
        write(folder + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
        write(folder + "/memory.usage_in_bytes", std::to_string(used) + "\n");
        // Statistics of the group alone, and with its child groups; the latter count.
        write(folder + "/memory.stat",
              "cache 1\ninactive_file 7\nactive_file 9\ntotal_cache 1\n"
              "total_inactive_file " +
                  std::to_string(cache / 2) + "\ntotal_active_file " + std::to_string(cache / 2) +
                  "\n");
    }
    void group_2(const std::string &group, const std::string &limit, std::uint64_t used,
                 std::uint64_t cache = 0) const {
        const std::string folder = "/sys/fs/cgroup" + group;
        write(folder + "/memory.max", limit + "\n");
        write(folder + "/memory.current", std::to_string(used) + "\n");
        write(folder + "/memory.stat", "anon 5\ninactive_file " + std::to_string(cache) + "\n");
    }
    std::uint64_t free() const { return free_memory(root_.string()); }

    std::filesystem::path root_;
};

TEST_F(FreeMemory, IsThatOfTheMachineWithoutControlGroups) {
    EXPECT_EQ(free(), machine);
    write("/proc/self/cgroup", "3:cpu,cpuacct:/jobs\n0::/\n");
    EXPECT_EQ(free(), machine);
    write("/proc/self/cgroup", "nonsense\n::\n5:memory\n5:memory:relative\n");
    EXPECT_EQ(free(), machine);
}

TEST_F(FreeMemory, IsLimitedByAVersion1GroupAndItsAncestors) {
    write("/proc/self/cgroup", "9:name=systemd:/x\n4:memory:/jobs/7\n0::/\n");
    constexpr std::uint64_t unlimited = 9223372036854771712u;
    group_1("", unlimited, 4 * machine);
    EXPECT_EQ(free(), machine);
    group_1("/jobs/7", 100 * mebibyte, 40 * mebibyte);
    EXPECT_EQ(free(), 60 * mebibyte);
    group_1("/jobs/7", 100 * mebibyte, 40 * mebibyte, 30 * mebibyte);
    EXPECT_EQ(free(), 90 * mebibyte);
    group_1("/jobs", 200 * mebibyte, 150 * mebibyte);
    EXPECT_EQ(free(), 50 * mebibyte);
    group_1("", 20 * mebibyte, 21 * mebibyte);
    EXPECT_EQ(free(), 0u);
}

TEST_F(FreeMemory, IsLimitedByTheMountInAContainerThatCannotSeeItsPath) {
    write("/proc/self/cgroup", "2:cpu:/\n4:hugetlb,memory:/docker/0123\n");
    group_1("", 100 * mebibyte, 1 * mebibyte);
    EXPECT_EQ(free(), 99 * mebibyte);
}

TEST_F(FreeMemory, IsLimitedByAVersion2GroupAndItsAncestors) {
    write("/proc/self/cgroup", "0::/a/b\n");
    group_2("/a/b", "max", 5);
    EXPECT_EQ(free(), machine);
    group_2("/a", std::to_string(50 * mebibyte), 20 * mebibyte, 10 * mebibyte);
    EXPECT_EQ(free(), 40 * mebibyte);
}

TEST_F(FreeMemory, IsTheMinimumOfBothVersions) {
    write("/proc/self/cgroup", "4:memory:/one\n0::/two\n");
    group_1("/one", 100 * mebibyte, 0);
    group_2("/two", std::to_string(80 * mebibyte), 0);
    EXPECT_EQ(free(), 80 * mebibyte);
    group_1("/one", 70 * mebibyte, 0);
    EXPECT_EQ(free(), 70 * mebibyte);
}

TEST_F(FreeMemory, IsPositiveOnThisMachine) {
    EXPECT_GT(free_memory(), 0u);
}

}  // namespace
}  // namespace vescomm::internal
