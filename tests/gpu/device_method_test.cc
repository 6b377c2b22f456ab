// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_method.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
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
    EXPECT_EQ(padded_bytes(problem.shard_bytes), 336u) << "its shards are aligned";
    problem.workspace_bytes = 336;
    EXPECT_EQ(chosen(problem), DeviceMethod::padded);
    problem.workspace_bytes = 335;
    try {
        chosen(problem);
        FAIL() << "335 bytes were enough";
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_UNSUPPORTED);
        EXPECT_STREQ(error.what(),
                     "method \"padded\" does not suit: it needs a workspace of 336 bytes, and the "
                     "communicator has 335");
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
        ASSERT_EQ(choice.candidates.size(), std::size(device_methods));
        ASSERT_TRUE(choice.candidates[0].suits);
        ASSERT_EQ(choice.candidates[0].method, choice.method);
        for (std::size_t k = 1; k < choice.candidates.size(); ++k) {
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

const DeviceCandidate &candidate(const DeviceChoice &choice, DeviceMethod method) {
    return *std::ranges::find(choice.candidates, method, &DeviceCandidate::method);
}

// All problems of 1 to 4 ranks with these sizes.
void for_all_problems(const std::function<void(const DeviceProblem &)> &body) {
    const std::vector<std::uint64_t> sizes = {0, 16, 4096, 4096 + 16, 64 * MiB};
    for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
        std::size_t cases = 1;
        for (std::size_t k = 0; k < ranks; ++k) cases *= sizes.size();
        for (std::size_t n = 0; n < cases; ++n) {
            std::vector<std::uint64_t> shards;
            for (std::size_t k = 0, rest = n; k < ranks; ++k, rest /= sizes.size())
                shards.push_back(sizes[rest % sizes.size()]);
            for (const bool reduces : {false, true})
                for (const int version : {22809, 22902})
                    for (const std::uint64_t workspace : {std::uint64_t{0}, MiB, 1024 * MiB})
                        for (const bool gaps : {false, true})
                            for (const bool aligned : {false, true})
                                body({reduces, shards, workspace, version, "",
                                      gaps ? *std::ranges::max_element(shards) : 0, aligned});
        }
    }
}

TEST(DeviceMethod, SuitsExactlyThePossibleProblems) {
    for_all_problems([](const DeviceProblem &problem) {
        const auto &shards = problem.shard_bytes;
        const std::uint64_t largest = *std::ranges::max_element(shards);
        const DeviceChoice choice = choose_device_method(problem);
        const auto suits = [&](DeviceMethod method) { return candidate(choice, method).suits; };
        ASSERT_EQ(suits(DeviceMethod::equal), *std::ranges::min_element(shards) == largest);
        ASSERT_EQ(suits(DeviceMethod::padded_in_place), problem.stride >= largest);
        ASSERT_EQ(suits(DeviceMethod::padded), largest * shards.size() <= problem.workspace_bytes);
        ASSERT_TRUE(suits(DeviceMethod::rooted));
        ASSERT_EQ(suits(DeviceMethod::messages), !problem.reduces);
        // The fastest of those that suit; of several the first in the order of the enumeration.
        for (const DeviceMethod method : device_methods) {
            if (!suits(method)) continue;
            const double best = candidate(choice, choice.method).seconds;
            ASSERT_LE(best, candidate(choice, method).seconds);
            if (best == candidate(choice, method).seconds) {
                ASSERT_LE(choice.method, method);
            }
        }
        // Equal shards are never padded or divided into several calls.
        if (suits(DeviceMethod::equal) && problem.aligned && shards.size() > 1 && largest > MiB) {
            ASSERT_EQ(choice.method, DeviceMethod::equal);
        }
    });
}

// All ranks choose the same, whichever of them has which shard.
TEST(DeviceMethod, DoesNotDependOnTheOrderOfShards) {
    for_all_problems([](const DeviceProblem &problem) {
        DeviceProblem sorted = problem;
        std::ranges::sort(sorted.shard_bytes);
        ASSERT_EQ(chosen(problem), chosen(sorted));
    });
}

// The bytes of padding are compared with the calls that they save.
TEST(DeviceMethod, PaddingEndsWhereItCostsMoreThanItSaves) {
    for (const bool reduces : {false, true})
        for (const std::size_t ranks : {2, 3, 5, 7, 8})
            for (const std::uint64_t size : {64 * MiB, 512 * MiB}) {
                DeviceProblem problem = reduction(std::vector(ranks, size));
                problem.reduces = reduces;
                problem.workspace_bytes = 0;
                problem.stride = size;
                bool padded = true;
                // One shard shrinks to nothing, and then the others.
                for (std::size_t small = 0; small + 1 < ranks; ++small)
                    for (std::uint64_t bytes = size; bytes != 0;) {
                        // First in small steps.
                        if (bytes > size - MiB) bytes -= 65536;
                        else bytes -= std::min(bytes, 16 * MiB);
                        problem.shard_bytes[small] = bytes;
                        const bool now = chosen(problem) == DeviceMethod::padded_in_place;
                        EXPECT_TRUE(padded || !now) << "more padding is not faster again";
                        padded = now;
                    }
                // With two ranks the only shard passes one link in both ways.
                EXPECT_EQ(padded, ranks == 2) << "one owner is not padded";
            }
}

TEST(DeviceMethod, GapsNeedNoCopies) {
    DeviceProblem problem = reduction({64 * MiB, 60 * MiB, 64 * MiB});
    EXPECT_EQ(chosen(problem), DeviceMethod::rooted);
    problem.shard_bytes[1] = 64 * MiB - 4096;
    EXPECT_EQ(chosen(problem), DeviceMethod::rooted) << "copies take longer";
    problem.stride = 64 * MiB;
    EXPECT_EQ(chosen(problem), DeviceMethod::padded_in_place);
    const std::string text = to_string(problem, choose_device_method(problem));
    EXPECT_NE(text.find("one ncclReduceScatter in place of 67108864 bytes from each rank, of which "
                        "4096 bytes are padding\n"),
              std::string::npos)
        << text;
}

TEST(DeviceMethod, UnalignedShardsArePaddedInTheWorkspace) {
    DeviceProblem problem = gather(std::vector<std::uint64_t>(8, 64 * MiB + 4));
    EXPECT_EQ(chosen(problem), DeviceMethod::equal);
    problem.aligned = false;
    EXPECT_EQ(chosen(problem), DeviceMethod::padded) << "its shards are aligned";
    EXPECT_NE(to_string(problem, choose_device_method(problem)).find("not at multiples of 16"),
              std::string::npos);
    problem.workspace_bytes = 0;
    EXPECT_EQ(chosen(problem), DeviceMethod::equal);
}

TEST(DeviceMethod, CopyEnginesGatherOnlyIfTheyAreAskedFor) {
    std::mt19937 random(2);
    for (int i = 0; i < 500; ++i) {
        DeviceProblem problem;
        for (std::size_t k = 2 + random() % 8; k > 0; --k)
            problem.shard_bytes.push_back(random() % 3 == 0 ? 0 : random() % (1 << 28));
        problem.no_peers.clear();
        problem.nccl_version = 23203;
        DeviceCosts costs;
        costs.peer_link = 1e15;
        costs.peer_launch = costs.meeting = costs.copy = 0;
        for (const bool reduces : {false, true}) {
            problem.reduces = reduces;
            problem.forced.clear();
            const DeviceChoice free = choose_device_method(problem, costs);
            ASSERT_NE(free.method, DeviceMethod::copy_engine);
            problem.forced = "copy_engine";
            const DeviceChoice forced = choose_device_method(problem, costs);
            ASSERT_EQ(forced.method, reduces ? free.method : DeviceMethod::copy_engine);
        }
        problem.reduces = false;
        problem.borrowed = true;
        ASSERT_THROW(choose_device_method(problem, costs), Error);
    }
}

TEST(DeviceMethod, GapsMakeEqualShardsUnequal) {
    DeviceProblem problem = gather({20, 20, 20});
    problem.stride = 32;
    problem.workspace_bytes = 0;
    problem.forced = "equal";
    EXPECT_THROW(chosen(problem), Error);
    problem.forced = "padded_in_place";
    EXPECT_EQ(chosen(problem), DeviceMethod::padded_in_place);
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
