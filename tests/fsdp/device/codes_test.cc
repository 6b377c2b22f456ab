// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The runs that kernels convert: the blocks of the runs of host memory, in few kernels.
#include "fsdp/engine/device/codes.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace vescomm::fsdp::device {
namespace {

// The code and the scale of each element of a bucket.
using Places = std::map<std::int64_t, std::pair<std::uint64_t, std::uint64_t>>;

Places places_of(std::span<const GatherRun> runs) {
    Places places;
    for (const GatherRun &run : runs) {
        const std::int64_t scales = (run.period + run.block - 1) / run.block;
        for (std::int64_t i = 0; i < run.elements; ++i) {
            const std::int64_t scale = i / run.period * scales + i % run.period / run.block;
            const bool added =
                places
                    .emplace(run.offset + i,
                             std::pair(run.codes + static_cast<std::uint64_t>(i),
                                       run.scales + static_cast<std::uint64_t>(scale) * 4))
                    .second;
            EXPECT_TRUE(added) << run.offset + i;
        }
    }
    return places;
}

// Runs of one shard, as gather_codes() lays them out: `elements` in runs of up to `step`.
std::vector<GatherRun> shard(std::int64_t offset, std::int64_t elements, std::int64_t step,
                             std::int64_t period, std::int64_t block) {
    std::vector<GatherRun> runs;
    auto scales = static_cast<std::uint64_t>((offset + elements + 3) / 4 * 4);
    for (std::int64_t first = 0; first < elements; first += step) {
        const std::int64_t count = std::min(step, elements - first);
        runs.push_back({offset + first, count, std::min(period, count), block,
                        static_cast<std::uint64_t>(offset + first), scales});
        const std::int64_t per_period = (runs.back().period + block - 1) / block;
        const std::int64_t rest = count % runs.back().period;
        scales += static_cast<std::uint64_t>(count / runs.back().period * per_period +
                                             (rest + block - 1) / block) *
                  4;
    }
    return runs;
}

TEST(KernelRuns, HaveTheBlocksOfTheRuns) {
    for (const std::int64_t period : {16, 24, 301})
        for (const std::int64_t block : {8, 16, 100})
            for (const std::int64_t elements : {1, 16, 960, 1000}) {
                if (block > period) continue;
                const std::vector<GatherRun> runs = shard(7, elements, period * 3, period, block);
                const std::vector<GatherRun> joined = kernel_runs(runs);
                EXPECT_EQ(places_of(joined), places_of(runs))
                    << elements << " elements, period " << period << ", block " << block;
                for (const GatherRun &run : joined) EXPECT_EQ(run.period, run.elements);
            }
}

TEST(KernelRuns, JoinRunsOfWholeBlocks) {
    EXPECT_EQ(kernel_runs(shard(0, 10000, 512, 64, 64)).size(), 1u);
    // The last block of each period is a part.
    EXPECT_EQ(kernel_runs(shard(0, 10 * 301, 301 * 2, 301, 128)).size(), 10u);
    EXPECT_TRUE(kernel_runs({}).empty());
}

TEST(KernelRuns, StayApartBetweenShardsAndSizesOfBlocks) {
    std::vector<GatherRun> runs = shard(0, 128, 64, 64, 64);
    // The scales of the first shard lie between the codes of both.
    for (GatherRun run : shard(128, 128, 64, 64, 64)) {
        run.codes += 8;
        run.scales += 8;
        runs.push_back(run);
    }
    EXPECT_EQ(kernel_runs(runs).size(), 2u);
    GatherRun next = runs.back();
    next.offset += next.elements;
    next.codes += static_cast<std::uint64_t>(next.elements);
    next.scales += 4;
    next.block = 32;
    runs.push_back(next);
    const std::vector<GatherRun> joined = kernel_runs(runs);
    EXPECT_EQ(joined.size(), 3u);
    EXPECT_EQ(places_of(joined), places_of(runs));
}

}  // namespace
}  // namespace vescomm::fsdp::device
