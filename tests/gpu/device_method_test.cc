// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_method.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace vescomm::internal {
namespace {

constexpr std::uint64_t MiB = 1 << 20;

DeviceProblem gather(std::vector<std::uint64_t> shards) {
    return {false, std::move(shards), std::uint64_t{1} << 40, 22809, {}};
}

DeviceProblem reduction(std::vector<std::uint64_t> shards) {
    return {true, std::move(shards), std::uint64_t{1} << 40, 22809, {}};
}

DeviceMethod chosen(const DeviceProblem &problem) {
    return choose_device_method(problem).method;
}

TEST(DeviceMethod, EqualShardsNeedOneCall) {
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{4}, MiB, 1024 * MiB})
        for (const std::size_t ranks : {1, 2, 3, 8, 64}) {
            if (ranks == 1 || bytes == 0) continue;
            EXPECT_EQ(chosen(gather(std::vector(ranks, bytes))), DeviceMethod::equal);
            EXPECT_EQ(chosen(reduction(std::vector(ranks, bytes))), DeviceMethod::equal);
        }
    EXPECT_EQ(chosen(gather({5})), DeviceMethod::equal);
}

TEST(DeviceMethod, ASmallImbalanceIsPadded) {
    EXPECT_EQ(chosen(reduction({MiB, MiB, MiB, MiB + 4096, MiB, MiB, MiB, MiB})),
              DeviceMethod::padded);
}

TEST(DeviceMethod, ALargeImbalanceIsNot) {
    // Padded, seven empty shards would move 7 GiB instead of 1 GiB.
    const std::vector<std::uint64_t> one_owner = {0, 0, 0, 1024 * MiB, 0, 0, 0, 0};
    EXPECT_EQ(chosen(gather(one_owner)), DeviceMethod::rooted);
    EXPECT_EQ(chosen(reduction(one_owner)), DeviceMethod::rooted);
}

TEST(DeviceMethod, FusedBroadcastsReplacePadding) {
    DeviceProblem problem =
        gather({64 * MiB, 60 * MiB, 64 * MiB, 64 * MiB, 64 * MiB, 64 * MiB, 64 * MiB, 64 * MiB});
    problem.nccl_version = 22902;
    EXPECT_EQ(chosen(problem), DeviceMethod::rooted);
    EXPECT_NE(choose_device_method(problem).candidates[0].why.find("fuses"), std::string::npos);
}

TEST(DeviceMethod, SmallShardsAreMessages) {
    EXPECT_EQ(chosen(gather({16, 32, 0, 48, 16, 16, 16, 16})), DeviceMethod::messages);
}

TEST(DeviceMethod, PaddingNeedsTheWorkspace) {
    DeviceProblem problem = reduction({100, 104, 0});
    problem.forced = "padded";
    EXPECT_EQ(padded_bytes(problem.shard_bytes), 312u);
    problem.workspace_bytes = 312;
    EXPECT_EQ(chosen(problem), DeviceMethod::padded);
    problem.workspace_bytes = 311;
    try {
        chosen(problem);
        FAIL() << "311 bytes were enough";
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_UNSUPPORTED);
        EXPECT_STREQ(error.what(),
                     "method \"padded\" does not suit: it needs a workspace of 312 bytes, and the "
                     "communicator has 311");
    }
    problem.forced = "ring";
    EXPECT_THROW(chosen(problem), Error);
}

TEST(DeviceMethod, EveryProblemHasAMethodAndSortedCandidates) {
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        DeviceProblem problem;
        problem.reduces = random() % 2 == 0;
        problem.nccl_version = random() % 2 == 0 ? 22809 : 23203;
        problem.workspace_bytes = random() % 2 == 0 ? 0 : 1 << 30;
        const std::size_t ranks = 1 + random() % 33;
        for (std::size_t k = 0; k < ranks; ++k)
            problem.shard_bytes.push_back(random() % 3 == 0 ? 0 : random() % (1 << 24));
        const DeviceChoice choice = choose_device_method(problem);
        ASSERT_EQ(choice.candidates.size(), 4u);
        ASSERT_TRUE(choice.candidates[0].suits);
        ASSERT_EQ(choice.candidates[0].method, choice.method);
        for (std::size_t k = 1; k < 4; ++k) {
            if (!choice.candidates[k].suits) break;
            ASSERT_LE(choice.candidates[k - 1].seconds, choice.candidates[k].seconds);
        }
        // The forced method does not depend on predictions.
        for (const DeviceCandidate &one : choice.candidates) {
            problem.forced = name_of(one.method);
            if (one.suits) {
                EXPECT_EQ(chosen(problem), one.method);
            }
        }
    }
}

TEST(DeviceMethod, TextNamesEveryCandidate) {
    const DeviceProblem problem = reduction({100, 200});
    const std::string text = to_string(problem, choose_device_method(problem));
    EXPECT_NE(text.find("reduce_scatter_v of 300 bytes over 2 ranks, shards of 100 to 200 bytes\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("- "), std::string::npos);
    EXPECT_NE(text.find("messages: messages do not reduce\n"), std::string::npos) << text;
    EXPECT_NE(text.find("constants that were not measured"), std::string::npos);
}

}  // namespace
}  // namespace vescomm::internal
