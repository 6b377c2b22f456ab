// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks of different weights, and tensors with their own alignments.
#include <gtest/gtest.h>

#include <random>

#include "planner/place.h"
#include "planner/weights.h"
#include "planner_reference.h"
#include "random_problem.h"

namespace vescomm::planner {
namespace {

using reference::draw;

std::vector<std::int64_t> random_weights(std::mt19937 &random, int ranks) {
    std::vector<std::int64_t> weights;
    for (int rank = 0; rank < ranks; ++rank) weights.push_back(draw(random, 0, 4));
    weights[draw(random, 0, ranks - 1)] += 1;
    return weights;
}

// Reference solution: tries every quota, and gives every rank the most elements that quota and
// blocks allow.
bool possible_with(const std::vector<bool> &legal, const std::vector<std::int64_t> &weights,
                   std::int64_t quota) {
    std::int64_t sum = 0;
    for (const std::int64_t weight : weights) sum += weight;
    std::vector<bool> reached(legal.size(), false);
    reached[0] = true;
    for (const std::int64_t weight : weights) {
        std::vector<bool> next(legal.size(), false);
        for (std::size_t begin = 0; begin < legal.size(); ++begin) {
            if (!reached[begin]) continue;
            const auto limit = static_cast<std::size_t>(quota * weight / sum);
            for (std::size_t end = begin; end < legal.size() && end - begin <= limit; ++end) {
                if (legal[end]) next[end] = true;
            }
        }
        reached = next;
    }
    return reached.back();
}

std::vector<bool> legal_cuts(const Problem &problem, const std::vector<std::size_t> &order,
                             std::int64_t alignment) {
    std::vector<bool> legal;
    for (const std::size_t i : order) {
        while (static_cast<std::int64_t>(legal.size()) % alignment != 0) legal.push_back(true);
        const std::vector<bool> tensor = reference::legal_cuts(problem.tensors[i]);
        legal.insert(legal.end(), tensor.begin(), tensor.end());
    }
    legal.push_back(true);
    return legal;
}

TEST(PlannerWeights, SmallestQuotaEqualsTheReference) {
    std::mt19937 random(11);
    for (int i = 0; i < 2000; ++i) {
        Problem problem = reference::random_problem(random, 3, 6);
        problem.weights = random_weights(random, problem.ranks);
        const Shares shares(problem.ranks, problem.weights);
        if (shares.even()) continue;
        SCOPED_TRACE(reference::print(problem));
        const Options options{.start_alignment = draw(random, 1, 4)};
        const Items items = to_items(problem, options);
        std::vector<std::size_t> order(items.items.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto offsets = concatenate(items, order);
        const std::vector<bool> legal = legal_cuts(problem, order, options.start_alignment);
        std::int64_t quota = 0;
        while (!possible_with(legal, problem.weights, quota)) ++quota;
        const Line line(items, order, offsets);
        const auto found = smallest_quota(line, shares, 1, ~Quota{0}, unbounded);
        ASSERT_TRUE(found.has_value());
        ASSERT_EQ(static_cast<std::int64_t>(*found), quota);
        EXPECT_EQ(smallest_quota(line, shares, 1, *found + 1, unbounded), found);
        EXPECT_EQ(smallest_quota(line, shares, 1, *found, unbounded), std::nullopt);
    }
}

// Returns the smallest largest ratio of a shard to its rank's weight, in 60ths.
std::int64_t min_ratio(const std::vector<bool> &legal, const std::vector<std::int64_t> &weights) {
    constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> min(legal.size(), never);  // for a cut there
    min[0] = 0;
    for (const std::int64_t weight : weights) {
        std::vector<std::int64_t> next = min;  // an empty shard
        for (std::size_t end = 0; end < legal.size() && weight > 0; ++end) {
            for (std::size_t begin = 0; begin < end && legal[end]; ++begin) {
                if (min[begin] == never) continue;
                const auto shard = static_cast<std::int64_t>(end - begin);
                next[end] = std::min(next[end], std::max(min[begin], 60 * shard / weight));
            }
        }
        min = next;
    }
    return min.back();
}

// Checks proofs against all orders, and the answer against the best cuts of its order.
TEST(PlannerWeights, ProofsHoldForTheLargestShardOverItsShare) {
    std::mt19937 random(16);
    int proved = 0;
    for (int i = 0; i < 2000; ++i) {
        Problem problem = reference::random_problem(random, 3, 6);
        problem.weights = random_weights(random, problem.ranks);  // 0 to 5
        if (Shares(problem.ranks, problem.weights).even()) continue;
        SCOPED_TRACE(reference::print(problem));
        const Options options{.start_alignment = draw(random, 1, 4),
                              .cut_alignment = draw(random, 0, 1) == 0 ? 1 : draw(random, 1, 9)};
        const Answer answer = plan(problem, options);
        reference::expect_valid(problem, options, answer);
        std::int64_t ratio = 0;
        for (std::size_t rank = 0; rank < problem.weights.size(); ++rank) {
            const std::int64_t shard = answer.cuts[rank + 1] - answer.cuts[rank];
            if (shard > 0) ratio = std::max(ratio, 60 * shard / problem.weights[rank]);
        }
        std::vector<std::size_t> order(problem.tensors.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::int64_t min = unbounded;
        do {
            const auto legal = legal_cuts(problem, order, options.start_alignment);
            min = std::min(min, min_ratio(legal, problem.weights));
        } while (std::next_permutation(order.begin(), order.end()));
        ASSERT_GE(ratio, min);
        const double sum = std::accumulate(problem.weights.begin(), problem.weights.end(), 0.0);
        const double to_share = sum / 60 / (answer.mean_shard * problem.ranks);
        ASSERT_NEAR(answer.largest_over_share, static_cast<double>(ratio) * to_share, 1e-9);
        ASSERT_LE(answer.lower_bound_over_share, static_cast<double>(min) * to_share + 1e-9);
        if (answer.optimal) {
            ++proved;
            ASSERT_EQ(ratio, min) << answer.explanation;
            ASSERT_EQ(answer.lower_bound_over_share, answer.largest_over_share);
        }
        if (answer.largest_shard >= 100) continue;  // might be rounded up
        std::vector<std::size_t> given;
        for (const Place &place : answer.places) given.push_back(place.tensor);
        const auto legal = legal_cuts(problem, given, options.start_alignment);
        ASSERT_EQ(ratio, min_ratio(legal, problem.weights)) << answer.explanation;
    }
    EXPECT_GT(proved, 500);
}

// Rounding a shard of 1 up to 4 would be four times its rank's share.
TEST(PlannerWeights, CutsAreUnalignedIfAlignmentWouldViolateWeights) {
    const Problem problem{{{"v", {8}}}, 4, {1, 1, 1, 5}};
    const Answer answer = plan(problem, {.start_alignment = 1, .cut_alignment = 4});
    EXPECT_EQ(answer.cuts, (std::vector<std::int64_t>{0, 1, 2, 3, 8}));
    EXPECT_EQ(answer.largest_over_share, 1);
    EXPECT_TRUE(answer.optimal);

    // If alignment costs very little, cuts are aligned, and the answer is not called optimal if an
    // unaligned cut is better.
    const Problem large{{{"v", {1000003}}}, 2, {1, 2}};
    const Answer aligned = plan(large);
    EXPECT_EQ(aligned.cuts[1] % 64, 0);
    EXPECT_LT(aligned.largest_over_share, 1.0003);
    EXPECT_FALSE(aligned.optimal);
    EXPECT_LT(aligned.lower_bound_over_share, aligned.largest_over_share);
    const Answer exact = plan(large, {.cut_alignment = 1});
    EXPECT_EQ(exact.cuts[1], 333334);
    EXPECT_TRUE(exact.optimal) << exact.explanation;
    EXPECT_LE(aligned.lower_bound_over_share, exact.largest_over_share);
}

// Shards of 4 and 4 would have a smaller largest shard, but twice the share of the rank of
// weight 1.
TEST(PlannerWeights, ExplanationNamesTheMinimisedRatio) {
    const Problem problem{{{"v", {8}}}, 2, {1, 3}};
    const Answer answer = plan(problem, {.cut_alignment = 1});
    EXPECT_EQ(answer.cuts, (std::vector<std::int64_t>{0, 2, 8}));
    EXPECT_TRUE(answer.optimal);
    EXPECT_EQ(
        answer.explanation,
        "ragged shards for 2 ranks by weight: the largest has 6 elements, and a shard is up "
        "to 0.00 % above its rank's share, proved to be the least possible, by a lower bound; "
        "no padding");
}

TEST(PlannerWeights, GiveEachRankItsShareAndNothingForWeightZero) {
    std::mt19937 random(12);
    for (int i = 0; i < 1000; ++i) {
        Problem problem = reference::random_problem(random, 4, 7);
        problem.weights = random_weights(random, problem.ranks);
        SCOPED_TRACE(reference::print(problem));
        const Options options{.start_alignment = draw(random, 1, 4),
                              .cut_alignment = draw(random, 1, 4)};
        const Answer answer = plan(problem, options);
        reference::expect_valid(problem, options, answer);
        for (std::size_t rank = 0; rank < problem.weights.size(); ++rank) {
            if (problem.weights[rank] > 0) continue;
            EXPECT_EQ(answer.cuts[rank], answer.cuts[rank + 1]);
        }
    }
}

TEST(PlannerWeights, EqualWeightsChangeNothing) {
    std::mt19937 random(13);
    for (int i = 0; i < 300; ++i) {
        Problem problem = reference::random_problem(random, 4, 7);
        const Answer without = plan(problem);
        problem.weights.assign(static_cast<std::size_t>(problem.ranks), draw(random, 1, 5));
        const Answer with = plan(problem);
        EXPECT_EQ(with.cuts, without.cuts);
        EXPECT_EQ(with.places, without.places);
        EXPECT_EQ(with.explanation, without.explanation);
    }
}

TEST(PlannerWeights, FollowProportionsIfBlocksAllow) {
    const Problem problem{{{"w", {700, 64}}}, 3, {4, 1, 2}};
    const Answer answer = plan(problem);
    EXPECT_EQ(answer.cuts, (std::vector<std::int64_t>{0, 400 * 64, 500 * 64, 700 * 64}));
    EXPECT_TRUE(answer.optimal);
    EXPECT_EQ(answer.largest_over_share, 1);
    EXPECT_NE(answer.explanation.find("by weight"), std::string::npos) << answer.explanation;
}

TEST(PlannerWeights, MayBeOfAnySize) {
    const std::int64_t much = std::int64_t{1} << 61;
    const Problem problem{{{"w", {std::int64_t{1} << 40, 4096}, 7}, {"v", {1ll << 52}, -1}},
                          4,
                          {much, 1, 0, much - 1}};
    const Answer answer = plan(problem);
    reference::expect_valid(problem, {}, answer);
    EXPECT_EQ(answer.cuts[2], answer.cuts[3]);
    EXPECT_LT(answer.largest_shard, (1ll << 52) + (1ll << 20));
    const Problem skewed{{{"w", {1ll << 40}, -1}}, 3, {1, 1, 2}};
    EXPECT_EQ(plan(skewed).largest_shard, 1ll << 40);
}

TEST(PlannerWeights, RespectAShardLimit) {
    const Problem problem{{{"w", {1000, 64}}}, 3, {8, 1, 1}};
    EXPECT_GT(plan(problem).largest_shard, 40000);
    const Options options{.shard_limit = 30000};
    reference::expect_valid(problem, options, plan(problem, options));
    const Answer none = plan(problem, {.shard_limit = 20000});
    EXPECT_FALSE(none.feasible);
    EXPECT_NE(none.explanation.find("there is no layout"), std::string::npos) << none.explanation;
}

TEST(PlannerWeights, InvalidWeightsAreRefused) {
    const auto expect = [](std::vector<std::int64_t> weights, Mode mode, const char *part) {
        const Problem problem{{{"a", {100}}}, 2, std::move(weights)};
        try {
            plan(problem, {.mode = mode});
            ADD_FAILURE() << "accepted: " << part;
        } catch (const std::invalid_argument &error) {
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        }
    };
    expect({1}, Mode::ragged, "1 weights for 2 ranks");
    expect({1, -1}, Mode::ragged, "the weight of rank 1 is -1");
    expect({0, 0}, Mode::ragged, "all weights of 2 ranks are 0");
    expect({1ll << 62, 1}, Mode::balanced, "more than 2^62");
    expect({1, 2}, Mode::uniform, "uniform shards are equal");
    expect({1, 2}, Mode::owner, "mode owner");
    expect({1, -2}, Mode::automatic, "the weight of rank 1 is -2");
}

TEST(PlannerAlignment, TensorAlignmentHoldsInEveryMode) {
    std::mt19937 random(14);
    for (int i = 0; i < 1000; ++i) {
        Problem problem = reference::random_problem(random, 5, 6);
        std::int64_t common = 1;
        Options options{.start_alignment = draw(random, 1, 4), .cut_alignment = draw(random, 1, 4)};
        for (Tensor &tensor : problem.tensors) {
            tensor.alignment = draw(random, 0, 6);
            common = std::lcm(common, std::max<std::int64_t>(tensor.alignment, 1));
        }
        SCOPED_TRACE(reference::print(problem));
        for (const Mode mode : {Mode::ragged, Mode::uniform, Mode::balanced, Mode::automatic}) {
            options.mode = mode;
            const Answer answer = plan(problem, options);
            reference::expect_valid(problem, options, answer);
            if (mode == Mode::uniform) {
                EXPECT_EQ(answer.largest_shard % std::lcm(common, options.start_alignment), 0);
            }
        }
    }
}

// Tries every shard and every start: the planner's shard is the smallest possible one.
TEST(PlannerAlignment, KeepsUniformShardsAndBoundsExact) {
    std::mt19937 random(15);
    for (int i = 0; i < 300; ++i) {
        Problem problem = reference::random_problem(random, 3, 5);
        for (Tensor &tensor : problem.tensors) tensor.alignment = 1 << draw(random, 0, 2);
        const Options options{.mode = Mode::uniform, .start_alignment = 1};
        SCOPED_TRACE(reference::print(problem));
        const Items items = to_items(problem, options);
        std::vector<std::size_t> order(items.items.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::int64_t best = unbounded;
        do {
            std::vector<std::vector<bool>> tensors;
            std::vector<std::int64_t> alignments;
            for (const std::size_t j : order) {
                tensors.push_back(reference::legal_cuts(problem.tensors[items.items[j].tensor]));
                alignments.push_back(items.items[j].alignment);
            }
            std::int64_t shard = items.alignment;
            while (!reference::fits_uniform(tensors, shard, problem.ranks, alignments)) {
                shard += items.alignment;
            }
            best = std::min(best, shard);
        } while (std::next_permutation(order.begin(), order.end()));
        const Answer answer = plan(problem, options);
        EXPECT_LE(answer.lower_bound, best);
        EXPECT_GE(answer.largest_shard, best);
    }
}

TEST(PlannerAlignment, ImpossibleAlignmentIsRefused) {
    const auto refused = [](const Problem &problem, const Options &options) -> std::string {
        try {
            plan(problem, options);
        } catch (const std::invalid_argument &error) {
            return error.what();
        }
        return "";
    };
    EXPECT_NE(refused({{{"a", {1}, 1, 0, -1}}, 1}, {}).find("\"a\" has an alignment of -1"),
              std::string::npos);
    EXPECT_NE(refused({{{"a", {1}, 1, 0, 1ll << 31}}, 1}, {}).find("\"a\" has an alignment"),
              std::string::npos);
    EXPECT_NE(refused({{{"a", {1}, 1, 0, (1ll << 30) - 1}}, 1}, {}).find("least common multiple"),
              std::string::npos);
    // Each alignment is allowed, but not all together in equal shards.
    const Problem primes{{{"a", {99}, 1, 0, 65537}, {"b", {99}, 1, 0, 65539}}, 2};
    EXPECT_TRUE(plan(primes).feasible);
    const Answer uniform = plan(primes, {.mode = Mode::uniform});
    EXPECT_FALSE(uniform.feasible);
    EXPECT_NE(uniform.explanation.find("least common multiple"), std::string::npos);
    EXPECT_TRUE(plan(primes, {.mode = Mode::automatic}).feasible);
}

}  // namespace
}  // namespace vescomm::planner
