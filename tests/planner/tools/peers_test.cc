// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The ports of other systems' layouts reproduce published figures.
#include "planner/peers/peers.h"

#include <gtest/gtest.h>

#include "planner/input/rules.h"
#include "planner/models/models.h"

namespace vescomm::planner {
namespace {

using Shard = std::optional<std::int64_t> (*)(const Problem &, const Options &);

// Returns the padding of a model in per cent of its tensors.
double padding_of(std::string_view name, std::int64_t block_rows, int ranks, Shard shard) {
    Rules rules;
    rules.block_rows = block_rows;
    double buffers = 0;
    double tensors = 0;
    for (const Unit &unit : make_model(make_built_in_model(name), rules).units) {
        buffers += static_cast<double>(shard({unit.tensors, ranks, {}}, {}).value()) * ranks;
        for (const Tensor &tensor : unit.tensors)
            tensors += static_cast<double>(count_elements(tensor.shape).value());
    }
    return 100 * (buffers / tensors - 1);
}

TEST(Peers, FSDP2DoublesGptOssAt256Ranks) {
    EXPECT_NEAR(padding_of("gpt-oss-120b", 1, 256, fsdp2_shard), 98.2, 0.05);
    EXPECT_NEAR(padding_of("gpt-oss-120b", 1, 64, fsdp2_shard), 0.0, 0.05);
}

TEST(Peers, LcmGridOfMegatronPadsGptOssByAThird) {
    for (const int ranks : {64, 128, 256})
        EXPECT_NEAR(padding_of("gpt-oss-120b", 1, ranks, lcm_grid_shard), 31.85, 0.005) << ranks;
}

// Returns one unit of a model under the conditions of the published figures: an alignment of 16
// bytes.
double unit_padding(std::string_view name, std::size_t index, std::int64_t block_rows, int ranks,
                    Shard shard) {
    Rules rules;
    rules.block_rows = block_rows;
    const Unit unit = make_model(make_built_in_model(name), rules).units.at(index);
    Options options;
    options.start_alignment = 8;
    double tensors = 0;
    for (const Tensor &tensor : unit.tensors)
        tensors += static_cast<double>(count_elements(tensor.shape).value());
    const double shards = static_cast<double>(shard({unit.tensors, ranks, {}}, options).value());
    return 100 * (shards * ranks / tensors - 1);
}

TEST(Peers, VeScaleDependsOnTheOrderForDeepSeek) {
    const auto padding = [](std::int64_t rows, int ranks, Shard shard) {
        return unit_padding("deepseek-v3", 4, rows, ranks, shard);
    };
    EXPECT_NEAR(padding(16, 1024, vescale_shard), 11.97, 0.02);
    EXPECT_NEAR(padding(16, 1024, vescale_ascending_shard), 4.97, 0.02);
    EXPECT_NEAR(padding(16, 1536, vescale_shard), 25.97, 0.02);
    EXPECT_NEAR(padding(16, 1536, vescale_ascending_shard), 4.97, 0.02);
    EXPECT_NEAR(padding(32, 512, vescale_shard), 2.64, 0.02);
    EXPECT_NEAR(padding(128, 256, vescale_shard), 2.64, 0.02);
}

TEST(Peers, VeScaleHasThePublishedPaddingOfLlama) {
    const auto padding = [](std::int64_t rows, int ranks) {
        return unit_padding("llama-3-70b", 1, rows, ranks, vescale_shard);
    };
    EXPECT_NEAR(padding(1, 1024), 2.94, 0.02);
    EXPECT_NEAR(padding(32, 384), 64.7, 0.05);
    EXPECT_NEAR(padding(32, 128), 9.80, 0.02);
}

TEST(Peers, AreNeverBetterThanUniform) {
    for (const std::string_view name : {"llama-3-8b", "gpt-oss-20b", "mixtral-8x7b"}) {
        for (const int ranks : {3, 16, 96}) {
            Rules rules;
            rules.block_rows = 16;
            const Unit unit = make_model(make_built_in_model(name), rules).units.at(1);
            const Problem problem{unit.tensors, ranks, {}};
            Options options;
            options.mode = Mode::uniform;
            const std::int64_t ours = plan(problem, options).largest_shard;
            EXPECT_LE(ours, vescale_shard(problem, options).value()) << name << ranks;
            EXPECT_LE(ours, vescale_ascending_shard(problem, options).value()) << name << ranks;
        }
    }
}

TEST(Peers, AcceptScalarsEmptyTensorsAndEmptyProblems) {
    const Problem nothing{{}, 4, {}};
    const Problem odd{{{"scalar", {}}, {"empty", {0, 7}}, {"vector", {5}}}, 4, {}};
    for (const Peer &peer : peers()) {
        EXPECT_EQ(peer.shard(nothing, {}), 0) << peer.name;
        EXPECT_GE(peer.shard(odd, {}).value(), 2) << peer.name;
    }
}

TEST(Peers, ReturnNothingIfAShardExceeds64Bits) {
    const std::int64_t huge = std::int64_t{1} << 61;
    const Problem problem{{{"a", {huge}, -1}}, 1 << 20, {}};
    EXPECT_FALSE(vescale_shard(problem, {}).has_value());
    EXPECT_FALSE(fsdp2_shard({{{"a", {1, huge}}}, 1 << 20, {}}, {}).has_value());
}

}  // namespace
}  // namespace vescomm::planner
