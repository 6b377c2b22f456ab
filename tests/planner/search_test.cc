// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares proofs of the search over orders with all orders.
#include <gtest/gtest.h>

#include "planner/fill.h"
#include "planner/prove.h"
#include "planner_reference.h"
#include "random_options.h"

namespace vescomm::planner {
namespace {

using reference::draw;

// Returns the smallest shard over all orders, in multiples of the alignment.
std::int64_t smallest_of_all(const Problem &problem, const Options &options) {
    std::vector<std::vector<bool>> tensors;
    for (const Tensor &tensor : problem.tensors) tensors.push_back(reference::legal_cuts(tensor));
    std::sort(tensors.begin(), tensors.end());
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    do {  // each order of tensors that differ
        if (options.mode == Mode::uniform) {
            for (std::int64_t shard = options.start_alignment; shard < best;
                 shard += options.start_alignment) {
                if (!reference::fits_uniform(tensors, shard, problem.ranks,
                                             options.start_alignment)) {
                    continue;
                }
                best = shard;
            }
        } else {
            best = std::min(
                best, reference::smallest_ragged(tensors, problem.ranks, options.start_alignment,
                                                 options.cut_alignment));
        }
    } while (std::next_permutation(tensors.begin(), tensors.end()));
    return best;
}

// Returns true if the tensors fit into shards of this size in some order.
bool fits(const Problem &problem, const Options &options, std::int64_t shard) {
    if (options.mode == Mode::ragged) return smallest_of_all(problem, options) <= shard;
    std::vector<std::vector<bool>> tensors;
    for (const Tensor &tensor : problem.tensors) tensors.push_back(reference::legal_cuts(tensor));
    std::sort(tensors.begin(), tensors.end());
    do {
        if (reference::fits_uniform(tensors, shard, problem.ranks, options.start_alignment)) {
            return true;
        }
    } while (std::next_permutation(tensors.begin(), tensors.end()));
    return false;
}

void expect_proofs_are_true(Mode mode, int instances) {
    std::mt19937 random(mode == Mode::uniform ? 11 : 12);
    int better = 0;
    int raised = 0;
    for (int i = 0; i < instances; ++i) {
        const Problem problem = reference::random_problem_with_twins(random, 5, 5);
        Options options = reference::random_options(random, mode);
        const std::int64_t unit =
            mode == Mode::uniform ? options.start_alignment : options.cut_alignment;
        SCOPED_TRACE(reference::print(problem, options));
        const std::int64_t smallest = smallest_of_all(problem, options);
        const Answer without = plan(problem, options);
        for (const std::int64_t steps : {draw(random, 1, 100), std::int64_t{1000000}}) {
            options.search_steps = steps;
            const Answer answer = plan(problem, options);
            reference::expect_valid(problem, options, answer);
            const std::int64_t ours = (answer.largest_shard + unit - 1) / unit * unit;
            ASSERT_GE(ours, smallest);
            ASSERT_LE((answer.lower_bound + unit - 1) / unit * unit, smallest) << steps;
            ASSERT_LE(answer.largest_shard, without.largest_shard);
            ASSERT_GE(answer.lower_bound, without.lower_bound);
            if (answer.optimal) {
                ASSERT_EQ(ours, smallest) << steps << answer.explanation;
            }
            if (steps == 1000000) {  // more than enough to decide every question
                ASSERT_TRUE(answer.optimal) << answer.explanation;
                better += answer.largest_shard < without.largest_shard ? 1 : 0;
                raised += answer.lower_bound > without.lower_bound ? 1 : 0;
            }
        }
    }
    EXPECT_GT(better, 0);
    EXPECT_GT(raised, 0);
    std::printf("%d of %d found by the search, %d bounds raised\n", better, instances, raised);
}

TEST(PlannerSearch, ProofsHoldForAllOrdersOfUniformShards) {
    expect_proofs_are_true(Mode::uniform, 2000);
}

TEST(PlannerSearch, ProofsHoldForAllOrdersOfRaggedShards) {
    expect_proofs_are_true(Mode::ragged, 2000);
}

// Tests with few multisets, so that kinds must be dropped, and with all.
TEST(PlannerSearch, RefutesOnlyImpossibleShards) {
    std::mt19937 random(13);
    int refuted = 0;
    int impossible = 0;
    for (int i = 0; i < 3000; ++i) {
        const Mode mode = draw(random, 0, 1) == 0 ? Mode::uniform : Mode::ragged;
        const Problem problem = reference::random_problem_with_twins(random, 5, 5);
        Options options = reference::random_options(random, mode);
        options.cut_alignment = 1;
        const std::int64_t alignment = mode == Mode::uniform ? options.start_alignment : 1;
        const Items items = to_items(problem, options);
        const std::vector<Kind> kinds = kinds_of(items);
        const std::int64_t mean = (items.elements + items.ranks - 1) / items.ranks;
        const std::int64_t shard = (mean + draw(random, 0, 4)) / alignment * alignment;
        if (shard == 0) continue;
        SCOPED_TRACE(reference::print(problem, options) + " shard " + std::to_string(shard));
        const bool possible = fits(problem, options, shard);
        impossible += possible ? 0 : 1;
        for (const std::int64_t max_multisets : {2, 3, 6, 12, 1000}) {
            UniformFiller uniform(kinds, {shard, 0});
            RaggedFiller ragged(kinds, shard);
            Filler &filler = mode == Mode::uniform ? static_cast<Filler &>(uniform) : ragged;
            Budget budget{1000000};
            const auto take = [&](const std::vector<std::size_t> &order) {
                return order.size() == items.items.size();
            };
            const Verdict verdict =
                decide({kinds, shard, problem.ranks, max_multisets}, filler, take, budget);
            if (verdict == Verdict::refuted) {
                ASSERT_FALSE(possible) << max_multisets;
                refuted += max_multisets < 1000 ? 1 : 0;
            }
            if (max_multisets == 1000) {
                ASSERT_EQ(verdict, possible ? Verdict::found : Verdict::refuted);
            }
        }
    }
    EXPECT_GT(refuted, impossible);  // of four times as many
}

}  // namespace
}  // namespace vescomm::planner
