// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner is never worse than other systems, than equal shards, or than the default order.
//
// The comparisons and their limits:
// - veScale-FSDP solves the uniform problem too, so its shard is an upper bound of the uniform
//   shard. Equal shards are also a ragged layout, so the uniform shard is an upper bound of the
//   largest ragged shard.
// - FSDP2 distributes each tensor separately. It keeps rows together but tensors are not
// contiguous,
//   which may be shorter than any contiguous layout (Fsdp2MayBeSmaller... below), so only padding
//   is compared.
// - Megatron-FSDP keeps rows but not blocks. Its layout is an upper bound only if it happens to
// keep
//   the blocks.
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/arithmetic.h"
#include "planner/peers/peers.h"
#include "planner_reference.h"
#include "random_layers.h"
#include "random_options.h"
#include "vescomm/planner_model.hpp"

namespace vescomm::planner {
namespace {

using reference::draw;
using reference::print;

struct Case {
    Problem problem;
    Options options;
};

// Makes small problems, layers, and long tensors. The first two have various alignments.
template <typename Check>
void for_random_problems(std::uint32_t seed, const Check &check) {
    std::mt19937 random(seed);
    const auto run = [&](const Case &given) {
        SCOPED_TRACE(print(given.problem, given.options));
        check(given);
    };
    for (int i = 0; i < 6000 && !testing::Test::HasFailure(); ++i) {
        const Problem problem =
            reference::random_problem_of(random, reference::random_small_tensor, 7, 40);
        run({problem, reference::random_options(random, Mode::ragged)});
    }
    for (int i = 0; i < 1000 && !testing::Test::HasFailure(); ++i) {
        const int ranks = i % 4 == 0 ? 3000 : 100;
        Case given{reference::random_problem_of(random, reference::random_layer_tensor, 30, ranks),
                   {}};
        given.options.start_alignment = std::int64_t{1} << draw(random, 0, 7);
        given.options.cut_alignment = std::int64_t{1} << draw(random, 0, 7);
        run(given);
    }
    for (int i = 0; i < 50 && !testing::Test::HasFailure(); ++i) {
        const Problem problem =
            reference::random_problem_of(random, reference::random_long_tensor, 30, 200);
        run({problem, reference::random_options(random, Mode::ragged)});
    }
}

Answer plan_mode(const Case &given, Mode mode) {
    Options options = given.options;
    options.mode = mode;
    return plan(given.problem, options);
}

TEST(NeverWorse, UniformShardIsAtMostThatOfVeScaleInBothOrders) {
    for_random_problems(71, [](const Case &given) {
        const Answer ours = plan_mode(given, Mode::uniform);
        for (const auto shard : {vescale_shard, vescale_ascending_shard}) {
            const auto theirs = shard(given.problem, given.options);
            if (!theirs) continue;
            ASSERT_TRUE(ours.feasible) << ours.explanation;
            ASSERT_LE(ours.largest_shard, *theirs) << ours.explanation;
        }
    });
}

// Shards could be multiples of 960 numbers, too many to try all, and must be a multiple of the
// largest.
TEST(NeverWorse, UniformShardIsAtMostThatOfVeScaleForManyRowLengths) {
    constexpr std::int64_t all = 232792560;  // their least common multiple
    Problem problem{{}, 440};
    for (const std::int64_t row : {2, 4, 8, 16, 3, 9, 5, 7, 11, 13, 17, 19})
        problem.tensors.push_back({"long" + std::to_string(row), {30 * all / row, row}});
    for (int i = 0; i < 100; ++i)
        problem.tensors.push_back({"whole" + std::to_string(i), {all / 10 * 7}, -1});
    const Options options{.mode = Mode::uniform, .start_alignment = 1};
    EXPECT_EQ(vescale_shard(problem, options), 2 * all);
    EXPECT_EQ(plan(problem, options).largest_shard, 2 * all);
}

// Ragged shards are compared after rounding up to Options::cut_alignment, so they may exceed
// uniform shards by less than that if these are not multiples of it.
void expect_ragged_no_worse(const Case &given, const Answer &uniform) {
    const Answer ragged = plan_mode(given, Mode::ragged);
    reference::expect_valid(given.problem, given.options, ragged);
    if (!uniform.feasible) return;
    ASSERT_LE(ragged.largest_shard, round_up(uniform.largest_shard, given.options.cut_alignment))
        << ragged.explanation << "\n"
        << uniform.explanation;
    ASSERT_LE(ragged.lower_bound, uniform.largest_shard) << ragged.explanation;
}

TEST(NeverWorse, RaggedShardIsAtMostUniform) {
    for_random_problems(72, [](const Case &given) {
        expect_ragged_no_worse(given, plan_mode(given, Mode::uniform));
    });
}

// When tensors have different alignments, the earliest start need not be the best.
TEST(NeverWorse, RaggedShardIsAtMostUniformIfAGapAlignsTheNextStart) {
    const Problem problem{{{"a", {6}, -1, 0, 6}, {"b", {9, 2}, 3, 0, 4}, {"c", {5, 2, 2}, 3, 1}},
                          4};
    expect_ragged_no_worse({problem, {.start_alignment = 1, .cut_alignment = 3}},
                           plan(problem, {.mode = Mode::uniform, .start_alignment = 1}));
}

// After a search, its proofs must also hold for equal shards.
TEST(NeverWorse, RaggedShardIsAtMostUniformAfterASearch) {
    for_random_problems(73, [](Case given) {
        const Answer uniform = plan_mode(given, Mode::uniform);
        given.options.search_steps = 3000;
        expect_ragged_no_worse(given, uniform);
    });
}

// A tight limit leaves little choice, but equal shards of that size are also ragged shards.
TEST(NeverWorse, RaggedMeetsEveryShardLimitThatUniformMeets) {
    for_random_problems(78, [](Case given) {
        const Answer uniform = plan_mode(given, Mode::uniform);
        given.options.shard_limit = uniform.largest_shard;
        if (uniform.feasible) expect_ragged_no_worse(given, uniform);
    });
}

// The other systems align nothing, so nothing is aligned here.
Case without_alignment(Case given) {
    given.options.start_alignment = 1;
    given.options.cut_alignment = 1;
    for (Tensor &tensor : given.problem.tensors) tensor.alignment = 0;
    return given;
}

TEST(NeverWorse, RaggedPaddingIsAtMostThatOfOtherSystems) {
    for_random_problems(74, [](const Case &any) {
        const Case given = without_alignment(any);
        const Answer ragged = plan_mode(given, Mode::ragged);
        EXPECT_EQ(ragged.padding, 0);
        for (const Peer &peer : peers()) {
            const auto theirs = peer.shard(given.problem, given.options);
            if (!theirs) continue;
            ASSERT_LE(ragged.elements, *theirs * given.problem.ranks) << peer.name;
        }
    });
}

// Returns true if tensors one after another may be cut at every multiple of the shard.
bool keeps_blocks(const Problem &problem, std::int64_t shard) {
    std::int64_t begin = 0;
    for (const Tensor &tensor : problem.tensors) {
        const std::int64_t end = begin + reference::elements(tensor);
        for (std::int64_t cut = (begin / shard + 1) * shard; cut < end; cut += shard)
            if (!reference::may_cut(tensor, cut - begin)) return false;
        begin = end;
    }
    return true;
}

TEST(NeverWorse, UniformShardIsAtMostThatOfLcmGridIfItKeepsBlocks) {
    int kept = 0;
    for_random_problems(75, [&kept](const Case &any) {
        const Case given = without_alignment(any);
        const auto theirs = lcm_grid_shard(given.problem, given.options);
        if (!theirs || *theirs == 0 || !keeps_blocks(given.problem, *theirs)) return;
        ++kept;
        const Answer ours = plan_mode(given, Mode::uniform);
        ASSERT_TRUE(ours.feasible) << ours.explanation;
        ASSERT_LE(ours.largest_shard, *theirs) << ours.explanation;
    });
    EXPECT_GT(kept, 500);
}

// Two ranks, rows of 2 and of 3 elements: FSDP2 gives a row of each to a rank, but contiguous
// tensors give 4 and 6 elements to the ranks.
TEST(NeverWorse, Fsdp2MayBeSmallerBecauseTensorsAreNotContiguous) {
    const Problem problem{{{"a", {2, 2}}, {"b", {2, 3}}}, 2};
    const Options options{.start_alignment = 1, .cut_alignment = 1, .search_steps = 1000};
    EXPECT_EQ(fsdp2_shard(problem, options), 5);
    const Answer ours = plan(problem, options);
    EXPECT_EQ(ours.largest_shard, 6);
    EXPECT_TRUE(ours.optimal);
}

// Estimates that differ by less than a hundredth count as equal, and memory decides.
TEST(NeverWorse, AutomaticCostsAtMostUniformAndRagged) {
    std::mt19937 random(76);
    for_random_problems(77, [&random](const Case &given) {
        const Model model{{{"unit", VESCOMM_BF16, given.problem.tensors}}, given.problem.ranks};
        Options options = given.options;
        options.costs.bytes_per_second = static_cast<double>(draw(random, 1, 1000)) * 1e6;
        const auto plan_model = [&](Mode mode) {
            options.mode = mode;
            return plan(model, options);
        };
        const ModelAnswer automatic = plan_model(Mode::automatic);
        const ModelAnswer ragged = plan_model(Mode::ragged);
        const ModelAnswer uniform = plan_model(Mode::uniform);
        const double fastest = uniform.feasible
                                   ? std::min(uniform.seconds_per_step, ragged.seconds_per_step)
                                   : ragged.seconds_per_step;
        ASSERT_LE(automatic.seconds_per_step, fastest * 1.01) << automatic.explanation;
        for (const ModelAnswer &other : {ragged, uniform}) {
            if (!other.feasible || other.seconds_per_step > fastest) continue;
            if (automatic.seconds_per_step == fastest) continue;
            ASSERT_LE(automatic.largest_rank_bytes, other.largest_rank_bytes)
                << automatic.explanation;
        }
    });
}

}  // namespace
}  // namespace vescomm::planner
