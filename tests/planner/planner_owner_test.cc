// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Mode owner: whole matrices on one rank.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "planner/owner.h"
#include "random_model.h"

namespace vescomm::planner {
namespace {

using reference::draw;

std::int64_t work_of(const Tensor &tensor, Work work) {
    const auto batch = static_cast<std::size_t>(tensor.batch_dimensions);
    if (tensor.shape.size() < batch + 2) return reference::elements(tensor);
    const std::int64_t rows = tensor.shape[batch];
    const std::int64_t columns = reference::product(tensor.shape, batch + 1, tensor.shape.size());
    if (work == Work::elements) return rows * columns;
    const std::int64_t s = std::min(rows, columns);
    return s * s * (2 * std::max(rows, columns) + s);
}

std::int64_t matrices_of(const Tensor &tensor) {
    const auto batch = static_cast<std::size_t>(tensor.batch_dimensions);
    if (tensor.shape.size() < batch + 2) return 1;
    return reference::product(tensor.shape, 0, batch);
}

// Returns the work of every rank, derived from the cuts of the layouts.
std::vector<std::int64_t> work_of_ranks(const Model &model, const ModelAnswer &answer, Work work) {
    std::vector<std::int64_t> loads(static_cast<std::size_t>(model.ranks), 0);
    for (std::size_t i = 0; i < model.units.size(); ++i) {
        const Answer &unit = *answer.units[i];
        for (const Place &place : unit.places) {
            const Tensor &tensor = model.units[i].tensors[place.tensor];
            const std::int64_t matrices = matrices_of(tensor);
            if (reference::elements(tensor) == 0) continue;
            const std::int64_t size = reference::elements(tensor) / matrices;
            for (std::int64_t j = 0; j < matrices; ++j) {
                const std::int64_t begin = place.offset + j * size;
                const auto owner = std::ranges::upper_bound(unit.cuts, begin) - 1;
                EXPECT_GE(*(owner + 1), begin + size);
                loads[static_cast<std::size_t>(owner - unit.cuts.begin())] += work_of(tensor, work);
            }
        }
    }
    return loads;
}

std::vector<std::int64_t> all_works(const Model &model, Work work) {
    std::vector<std::int64_t> works;
    for (const Unit &unit : model.units) {
        for (const Tensor &tensor : unit.tensors) {
            for (std::int64_t j = 0; j < matrices_of(tensor); ++j) {
                if (reference::elements(tensor) > 0) works.push_back(work_of(tensor, work));
            }
        }
    }
    std::ranges::sort(works, std::ranges::greater());
    return works;
}

// Returns the largest load of longest processing time first, without the constraint of contiguity.
std::int64_t plain_makespan(const std::vector<std::int64_t> &works, int ranks) {
    std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
    for (const std::int64_t work : works) *std::ranges::min_element(loads) += work;
    return *std::ranges::max_element(loads);
}

void assign_all(const std::vector<std::int64_t> &works, std::size_t next,
                std::vector<std::int64_t> &loads, std::int64_t &best) {
    const std::int64_t largest = *std::ranges::max_element(loads);
    if (largest >= best) return;
    if (next == works.size()) {
        best = largest;
        return;
    }
    for (std::size_t rank = 0; rank < loads.size(); ++rank) {
        bool seen = false;  // a rank with an equal load was tried
        for (std::size_t other = 0; other < rank; ++other) {
            seen = seen || loads[other] == loads[rank];
        }
        if (seen) continue;
        loads[rank] += works[next];
        assign_all(works, next + 1, loads, best);
        loads[rank] -= works[next];
    }
}

std::int64_t best_makespan(const std::vector<std::int64_t> &works, int ranks) {
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
    assign_all(works, 0, loads, best);
    return best;
}

struct Makespan {
    std::int64_t found = 0;
    double mean = 0;
};

Makespan expect_valid_owner(const Model &model, const Options &options, const ModelAnswer &answer) {
    reference::expect_valid(model, options, answer);
    if (testing::Test::HasFailure()) return {};
    const std::vector<std::int64_t> loads = work_of_ranks(model, answer, options.work);
    Makespan makespan;
    std::int64_t sum = 0;
    for (const std::int64_t load : loads) {
        sum += load;
        makespan.found = std::max(makespan.found, load);
    }
    makespan.mean = static_cast<double>(sum) / model.ranks;
    EXPECT_DOUBLE_EQ(answer.largest_rank_cost_over_mean,
                     static_cast<double>(makespan.found) / makespan.mean);
    EXPECT_LE(answer.lower_bound_cost_over_mean, answer.largest_rank_cost_over_mean);
    return makespan;
}

TEST(PlannerOwner, IsNeverWorseThanLongestFirstAndOftenOptimal) {
    std::mt19937 random(31);
    int best = 0;
    int all = 0;
    for (int i = 0; i < 500; ++i) {
        Model model = reference::random_model(random, 4, 3, 4);
        for (Unit &unit : model.units) {
            for (Tensor &tensor : unit.tensors) tensor.batch_dimensions = 0;
        }
        Options options{.mode = Mode::owner, .start_alignment = draw(random, 1, 4)};
        options.work = draw(random, 0, 1) == 0 ? Work::muon : Work::elements;
        SCOPED_TRACE(reference::print(model));
        const ModelAnswer answer = plan(model, options);
        const Makespan makespan = expect_valid_owner(model, options, answer);
        const std::vector<std::int64_t> works = all_works(model, options.work);
        ASSERT_LE(makespan.found, plain_makespan(works, model.ranks));
        const std::int64_t optimum = best_makespan(works, model.ranks);
        ASSERT_GE(makespan.found, optimum);
        EXPECT_LE(answer.lower_bound_cost_over_mean * makespan.mean,
                  static_cast<double>(optimum) * 1.0000001);
        ++all;
        best += makespan.found == optimum ? 1 : 0;
    }
    EXPECT_GT(best, all * 9 / 10) << best << " of " << all;
}

TEST(PlannerOwner, KeepsStackedMatricesContiguous) {
    std::mt19937 random(32);
    double above = 0;
    int all = 0;
    for (int i = 0; i < 500; ++i) {
        Model model = reference::random_model(random, 5, 4, 5);
        Options options{.mode = Mode::owner, .start_alignment = draw(random, 1, 4)};
        options.work = draw(random, 0, 1) == 0 ? Work::muon : Work::elements;
        SCOPED_TRACE(reference::print(model));
        const ModelAnswer answer = plan(model, options);
        const Makespan makespan = expect_valid_owner(model, options, answer);
        ASSERT_FALSE(testing::Test::HasFailure());
        const std::vector<std::int64_t> works = all_works(model, options.work);
        // Keeping arrays whole costs at most one additional matrix on one rank.
        EXPECT_LE(makespan.found, plain_makespan(works, model.ranks) + 2 * works.front());
        above += static_cast<double>(makespan.found) /
                     static_cast<double>(plain_makespan(works, model.ranks)) -
                 1;
        ++all;
    }
    EXPECT_LT(above / all, 0.15);
}

// 36 layers of 128 fused experts each, as in GPT-OSS.
TEST(PlannerOwner, DividesFusedExpertsEvenly) {
    Model model;
    for (int layer = 0; layer < 36; ++layer) {
        model.units.push_back({"layer",
                               VESCOMM_BF16,
                               {{"q", {4096, 2880}},
                                {"o", {2880, 4096}},
                                {"norm", {2880}},
                                {"gate_up", {128, 5760, 2880}, 1, 1},
                                {"bias", {128, 5760}, 1, 1},
                                {"down", {128, 2880, 2880}, 1, 1}}});
    }
    // One matrix is a seventh of the work of each of 1024 ranks.
    const std::pair<int, double> max[] = {{8, 1.001}, {64, 1.01}, {100, 1.02}, {1024, 1.08}};
    for (const auto &[ranks, cost] : max) {
        model.ranks = ranks;
        const Options options{.mode = Mode::owner};
        const ModelAnswer answer = plan(model, options);
        expect_valid_owner(model, options, answer);
        EXPECT_LT(answer.largest_rank_cost_over_mean, cost) << ranks;
    }
}

TEST(PlannerOwner, SupportsWorkOfAnySize) {
    const std::int64_t long_side = std::int64_t{1} << 40;
    Model model;
    model.ranks = 3;
    for (int i = 0; i < 6; ++i) {
        model.units.push_back({"u", VESCOMM_U8, {{"w", {long_side, 1 << 18}}, {"s", {}}}});
    }
    // Too many matrices to visit one by one.
    model.units.push_back({"stacked", VESCOMM_U8, {{"w", {1ll << 50, 2, 2}, 1, 1}}});
    for (const Work work : {Work::muon, Work::elements}) {
        Options options{.mode = Mode::owner};
        options.work = work;
        const ModelAnswer answer = plan(model, options);
        ASSERT_TRUE(answer.feasible);
        EXPECT_GE(answer.largest_rank_cost_over_mean, 1);
        EXPECT_LT(answer.largest_rank_cost_over_mean, 1.01);
    }
    const Works works = works_of(
        to_groups({{{"u", VESCOMM_U8, {{"w", {1ll << 31, 1ll << 31}}}}}, 1}, {.mode = Mode::owner}),
        Work::muon)[0][0];
    EXPECT_EQ(works.matrices, 1);
    EXPECT_GT(works.each, 1ll << 59);
}

TEST(PlannerOwner, AcceptsEmptyTensorsAndMoreRanksThanMatrices) {
    const Model model{{{"a", VESCOMM_BF16, {{"none", {0, 7}}, {"s", {}}, {"w", {4, 4}, 32}}},
                       {"b", VESCOMM_BF16, {}},
                       {"c", VESCOMM_F32, {{"none", {3, 0}, 1, 1}}}},
                      50};
    const Options options{.mode = Mode::owner};
    const ModelAnswer answer = plan(model, options);
    expect_valid_owner(model, options, answer);
    EXPECT_EQ(answer.units[0]->order, "owner");
}

TEST(PlannerOwner, RespectsAShardLimit) {
    const Model model{{{"u", VESCOMM_BF16, {{"w", {64, 64}}, {"v", {64, 64}}}}}, 2};
    EXPECT_TRUE(plan(model, {.mode = Mode::owner, .shard_limit = 4096}).feasible);
    const ModelAnswer none = plan(model, {.mode = Mode::owner, .shard_limit = 4095});
    EXPECT_FALSE(none.feasible);
    EXPECT_NE(none.explanation.find("unit \"u\": there is no layout"), std::string::npos);
}

}  // namespace
}  // namespace vescomm::planner
