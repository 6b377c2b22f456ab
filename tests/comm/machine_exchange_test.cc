// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/machine_exchange.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "topology/machine_file.h"
#include "topology/node_name.h"

namespace vescomm::internal {
namespace {

struct RankLocation {
    std::string cores, host;
};

// `of_rank_0`: the further lines of the text of rank 0.
MachineExchange exchange(const Nodes &nodes, const std::vector<RankLocation> &ranks,
                         const std::string &of_rank_0) {
    std::vector<std::string> all;
    for (const RankLocation &rank : ranks)
        all.push_back(rank.cores + "\n" + rank.host + "\n" + (all.empty() ? of_rank_0 : ""));
    return machine_exchange(nodes, all);
}

TEST(MachineExchange, RanksWithTheirOwnCoresShareNone) {
    const MachineExchange result = exchange(Nodes::single(2), {{"1", "a"}, {"2", "a"}}, "rdma\n");
    EXPECT_EQ(result.machine, Machine{});
    EXPECT_EQ(result.cores, std::vector<int>{2});
}

TEST(MachineExchange, RanksOfAllNodesOfAHostShareItsCores) {
    const MachineExchange result = exchange(Nodes::from_sizes(std::vector{1, 1, 1}),
                                            {{"3", "a"}, {"3", "a"}, {"3", "a"}}, "rdma\n");
    EXPECT_EQ(result.machine.cores, 2);
    EXPECT_EQ(result.machine.nodes_per_host, 3);
    EXPECT_EQ(result.cores, (std::vector<int>{2, 2, 2}));
    const MachineExchange apart = exchange(Nodes::from_sizes(std::vector{1, 1, 1}),
                                           {{"3", "a"}, {"3", "b"}, {"3", "c"}}, "rdma\n");
    EXPECT_EQ(apart.machine, Machine{});
}

TEST(MachineExchange, ModelDescribesTheHostWithTheFewestCoresPerRank) {
    const MachineExchange result = exchange(
        Nodes::from_sizes(std::vector{2, 4}),
        {{"3", "a"}, {"3", "a"}, {"3", "b"}, {"3", "b"}, {"3", "b"}, {"3", "b"}}, "rdma\n");
    EXPECT_EQ(result.machine.cores, 2);
    EXPECT_EQ(result.machine.nodes_per_host, 1);
}

TEST(MachineExchange, LinksAreThoseOfRankZero) {
    EXPECT_EQ(exchange(Nodes::single(1), {{"1", "a"}}, "tcp\n").machine, Machine{}.with_tcp());
}

TEST(MachineExchange, AllRanksUseTheMachineFileOfRankZero) {
    MachineFile file;
    file.processor = "X";
    file.cores = 2;
    file.machine.flag_seconds = 5e-8;
    const MachineExchange result =
        exchange(Nodes::single(1), {{"1", "a"}}, "tcp\n" + to_text(file));
    EXPECT_EQ(result.machine.flag_seconds, 5e-8);
    EXPECT_THROW(exchange(Nodes::single(1), {{"1", "a"}}, "tcp\nnonsense\n"), Error);
}

TEST(MachineExchange, TextsOfMembersHaveTheConstantsOfRankZero) {
    const std::string all[] = {"1\na\ntcp\nconstants\n", "2\na\n", "3\nb\n"};
    const std::vector<std::string> some = {"3\nb\ntcp\nconstants\n", "1\na\n"};
    EXPECT_EQ(texts_of_members(all, std::vector{2, 0}), some);
    EXPECT_EQ(texts_of_members(all, std::vector{0, 1, 2}),
              std::vector<std::string>(std::begin(all), std::end(all)));
}

TEST(MachineExchange, OnlyRankZeroReadsTheFile) {
    const std::string name = testing::TempDir() + "vescomm-machine-file";
    Config config;
    config.machine = name;
    std::filesystem::remove(name);
    EXPECT_NO_THROW(machine_text(1, config));
    EXPECT_THROW(machine_text(0, config), Error);
    MachineFile file;
    file.processor = "X";
    file.cores = 2;
    std::ofstream(name) << to_text(file);
    EXPECT_NE(machine_text(0, config).find(to_text(file)), std::string::npos);
    EXPECT_EQ(machine_text(1, config).find("vescomm machine"), std::string::npos);
    std::ofstream(name) << "nonsense";
    EXPECT_THROW(machine_text(0, config), Error);
    std::filesystem::remove(name);
}

TEST(MachineExchange, CachedFileIsUsedOnlyOnTheMachineThatItDescribes) {
    const std::filesystem::path cache = testing::TempDir() + "vescomm-machine-cache";
    const char *before = std::getenv("XDG_CACHE_HOME");
    const std::string restored = before == nullptr ? "" : before;
    setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    const std::string name = own_machine_file(process_environment());
    std::filesystem::create_directories(cache / "vescomm");
    // The constant that all ranks use if the file of rank 0 has this text.
    const auto flag_seconds = [&](const std::string &text) {
        std::ofstream(name) << text;
        const std::string all[] = {machine_text(0, {})};
        const double result = machine_exchange(Nodes::single(1), all).machine.flag_seconds;
        EXPECT_EQ(machine_here({}, false).flag_seconds, result);
        return result;
    };
    MachineFile file;
    file.processor = processor_name();
    file.cores = processor_cores();
    file.machine.flag_seconds = 5e-8;
    const double default_value = Machine{}.flag_seconds;
    EXPECT_EQ(flag_seconds(to_text(file)), 5e-8);
    file.processor = "another processor";
    EXPECT_EQ(flag_seconds(to_text(file)), default_value);
    EXPECT_EQ(flag_seconds("nonsense"), default_value);
    EXPECT_EQ(flag_seconds(""), default_value);
    Config defaults;
    defaults.machine = "defaults";
    EXPECT_EQ(machine_here(defaults, true).flag_seconds, Machine{}.with_tcp().flag_seconds);
    std::filesystem::remove_all(cache);
    if (before == nullptr) unsetenv("XDG_CACHE_HOME");
    else setenv("XDG_CACHE_HOME", restored.c_str(), 1);
}

TEST(MachineExchange, FileIsInTheCacheFolder) {
    const auto name = [](const char *cache, const char *home) {
        return own_machine_file([=](const char *variable) {
            return std::string_view(variable) == "HOME" ? home : cache;
        });
    };
    EXPECT_TRUE(name("/cache", "/home/me").starts_with("/cache/vescomm/machine-"));
    EXPECT_TRUE(name(nullptr, "/home/me").starts_with("/home/me/.cache/vescomm/machine-"));
    EXPECT_TRUE(name("relative", "/home/me").starts_with("/home/me/.cache/vescomm/machine-"));
    EXPECT_EQ(name(nullptr, nullptr), "");
}

}  // namespace
}  // namespace vescomm::internal
