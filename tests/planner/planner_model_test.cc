// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Plans of whole models: units that are alike, the choice of a mode, errors.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "random_model.h"

namespace vescomm::planner {
namespace {

constexpr Mode all_modes[] = {Mode::ragged, Mode::uniform, Mode::balanced, Mode::owner,
                              Mode::automatic};

// A small model with typical layers.
Model layers(int count, int ranks) {
    Model model;
    model.ranks = ranks;
    for (int i = 0; i < count; ++i) {
        const std::string prefix = "layers." + std::to_string(i) + ".";
        model.units.push_back({prefix,
                               VESCOMM_BF16,
                               {{prefix + "w", {1000, 192}, 32},
                                {prefix + "x", {1000, 320}, 32},
                                {prefix + "norm", {192}}}});
    }
    return model;
}

TEST(PlannerModel, PlansUnitsThatAreAlikeOnce) {
    Model model = layers(6, 7);
    model.units[3].tensors[2].shape = {193};
    model.units[4].type = VESCOMM_F32;
    model.units[5].tensors[0].alignment = 128;
    for (const Mode mode : {Mode::ragged, Mode::uniform}) {
        const ModelAnswer answer = plan(model, {.mode = mode});
        EXPECT_EQ(answer.units[0], answer.units[1]);
        EXPECT_EQ(answer.units[0], answer.units[2]);
        EXPECT_NE(answer.units[0], answer.units[3]);
        EXPECT_NE(answer.units[0], answer.units[4]);
        EXPECT_NE(answer.units[0], answer.units[5]);
        reference::expect_valid(model, {.mode = mode}, answer);
    }
}

TEST(PlannerModel, PlanOfOneUnitEqualsPlanOfProblem) {
    std::mt19937 random(41);
    for (int i = 0; i < 200; ++i) {
        const Model model = reference::random_model(random, 3, 4, 6);
        for (const Mode mode : {Mode::ragged, Mode::uniform}) {
            const ModelAnswer answer = plan(model, {.mode = mode});
            for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
                const Answer alone =
                    plan(Problem{model.units[unit].tensors, model.ranks}, {.mode = mode});
                EXPECT_EQ(answer.units[unit]->cuts, alone.cuts);
                EXPECT_EQ(answer.units[unit]->places, alone.places);
            }
        }
    }
}

TEST(PlannerModel, PlansOneProblemInEveryMode) {
    std::mt19937 random(42);
    for (int i = 0; i < 300; ++i) {
        const Problem problem = reference::random_problem(random, 5, 9);
        SCOPED_TRACE(reference::print(problem));
        for (const Mode mode : {Mode::balanced, Mode::owner, Mode::automatic}) {
            const Answer answer = plan(problem, {.mode = mode});
            Problem asked = problem;
            if (mode == Mode::owner) {
                for (Tensor &tensor : asked.tensors) tensor.block_rows = -1;
            }
            reference::expect_valid(asked, {}, answer);
            EXPECT_NE(answer.explanation.find("shards for"), std::string::npos);
        }
    }
}

RC_GTEST_PROP(PlannerModelProperty, EveryAnswerIsValidAndRepeatable, ()) {
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    Model model = reference::random_model(random, 8, 6, 30);
    Options options;
    options.start_alignment = std::int64_t{1} << reference::draw(random, 0, 6);
    options.cut_alignment = std::int64_t{1} << reference::draw(random, 0, 6);
    for (const Mode mode : all_modes) {
        options.mode = mode;
        const ModelAnswer answer = plan(model, options);
        reference::expect_valid(model, options, answer);
        RC_ASSERT(!testing::Test::HasFailure());
        const ModelAnswer again = plan(model, options);
        RC_ASSERT(again.explanation == answer.explanation);
        RC_ASSERT(again.seconds_per_step == answer.seconds_per_step);
        for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
            RC_ASSERT(again.units[unit]->cuts == answer.units[unit]->cuts);
            RC_ASSERT(again.units[unit]->places == answer.units[unit]->places);
        }
    }
}

// Answers must be equal on all platforms and in all versions, because ranks with different builds
// must agree.
TEST(PlannerModel, AnswersNeverChange) {
    const auto hash = [](Mode mode) {
        const Model model = layers(9, 12);
        const ModelAnswer answer = plan(model, {.mode = mode});
        std::uint64_t all = 0;
        for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
            vescomm_layout_info_t info = vescomm_layout_info_init();
            vescomm_layout_get_info(make_layout(model, answer, unit).get(), &info);
            all = all * 31 + info.hash;
        }
        return all;
    };
    EXPECT_EQ(hash(Mode::balanced), 6810621850176298261u);
    EXPECT_EQ(hash(Mode::owner), 4867588301618234499u);
    EXPECT_EQ(hash(Mode::automatic), 15148391031385767831u);
}

TEST(PlannerAutomatic, ChoosesTheModeWithLessCommunicationTime) {
    Model model = layers(3, 16);
    const ModelAnswer ragged = plan(model, {.mode = Mode::ragged});
    const ModelAnswer uniform = plan(model, {.mode = Mode::uniform});
    ASSERT_LT(ragged.wire_bytes_per_step, uniform.wire_bytes_per_step);
    Options options{.mode = Mode::automatic};
    options.costs = {
        .bytes_per_second = 1e6, .seconds_per_collective = 1e-5, .seconds_per_unequal = 1e-5};
    ModelAnswer answer = plan(model, options);
    EXPECT_EQ(answer.mode, Mode::ragged);
    EXPECT_NE(answer.explanation.find("ms"), std::string::npos) << answer.explanation;
    options.costs.seconds_per_unequal = 10;
    answer = plan(model, options);
    EXPECT_EQ(answer.mode, Mode::uniform);
    EXPECT_NE(answer.explanation.find("where ragged shards need 99"), std::string::npos)
        << answer.explanation;
}

TEST(PlannerAutomatic, ChoosesTheModeThatHasALayout) {
    Model model = layers(2, 16);
    model.weights.assign(16, 2);
    model.weights[3] = 0;
    const ModelAnswer weighted = plan(model, {.mode = Mode::automatic});
    EXPECT_EQ(weighted.mode, Mode::ragged);
    EXPECT_NE(weighted.explanation.find("cannot follow weights"), std::string::npos);
    model.weights = {};
    const ModelAnswer ragged = plan(model, {.mode = Mode::ragged});
    const ModelAnswer limited =
        plan(model, {.mode = Mode::automatic, .shard_limit = ragged.units[0]->largest_shard});
    EXPECT_EQ(limited.mode, Mode::ragged);
    EXPECT_TRUE(limited.feasible);
    EXPECT_FALSE(plan(model, {.mode = Mode::automatic, .shard_limit = 64}).feasible);
}

TEST(PlannerCosts, CountTwoGathersAndOneReductionOfEachUnit) {
    const Model model{{{"u", VESCOMM_BF16, {{"w", {1000, 64}}}}}, 5};
    Options options;
    options.costs = {
        .bytes_per_second = 1000, .seconds_per_collective = 1, .seconds_per_unequal = 7};
    const ModelAnswer equal = plan(model, options);
    EXPECT_EQ(equal.wire_bytes_per_step, 3.0 * 4 * 200 * 64 * 2);
    EXPECT_DOUBLE_EQ(equal.seconds_per_step, 3.0 + equal.wire_bytes_per_step / 1000);
    const Model unequal{{{"u", VESCOMM_BF16, {{"w", {1001, 64}}}}}, 5};
    const ModelAnswer answer = plan(unequal, options);
    EXPECT_DOUBLE_EQ(answer.seconds_per_step, 24.0 + answer.wire_bytes_per_step / 1000);
}

TEST(PlannerModelEdges, AcceptsEmptyAndTinyModels) {
    for (const Mode mode : all_modes) {
        const Options options{.mode = mode};
        for (const Model &model :
             {Model{{}, 3}, Model{{{"u", VESCOMM_BF16, {}}}, 3},
              Model{{{"u", VESCOMM_BF16, {{"none", {0, 7}}, {"never", {3, 0, 2}, 4, 1}}}}, 3},
              Model{{{"u", VESCOMM_BF16, {{"scalar", {}}}}, {"v", VESCOMM_F32, {{"one", {1}}}}}, 9},
              Model{{{"u", VESCOMM_BF16, {{"w", {5, 3}}}}}, 1}}) {
            const ModelAnswer answer = plan(model, options);
            reference::expect_valid(model, options, answer);
        }
    }
}

TEST(PlannerModelEdges, SupportsMoreThanTwoToTheFortyElements) {
    const std::int64_t rows = std::int64_t{1} << 40;
    const Model model{{{"u", VESCOMM_BF16, {{"a", {rows, 1000}, 32}, {"b", {5}}}},
                       {"v", VESCOMM_F32, {{"c", {rows, 999}, 7}}}},
                      9991};
    for (const Mode mode : all_modes) {
        const Options options{.mode = mode};
        reference::expect_valid(model, options, plan(model, options));
    }
}

TEST(PlannerModelEdges, RefusesWithASentenceThatNamesTheUnit) {
    const auto expect = [](const Model &model, const Options &options, const char *part) {
        try {
            plan(model, options);
            ADD_FAILURE() << "accepted: " << part;
        } catch (const std::invalid_argument &error) {
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        }
    };
    const Unit good{"good", VESCOMM_BF16, {{"a", {2}}}};
    expect({{good}, 0}, {}, "0 ranks");
    expect({{good, {"bad", 99, {}}}, 1}, {}, "unit \"bad\": type 99");
    expect({{good, {"bad", VESCOMM_BF16, {{"a", {-1}}}}}, 1}, {}, "unit \"bad\": tensor \"a\"");
    expect({{{"big", VESCOMM_F64, {{"a", {1ll << 60}}}}}, 1}, {}, "unit \"big\": it brings");
    const Unit half{"half", VESCOMM_BF16, {{"a", {1ll << 60}}}};
    expect({{half, half, half}, 1}, {}, "above 2^62 bytes");
    expect({{good}, 2, {1}}, {}, "1 weights for 2 ranks");
    expect({{good}, 1}, {.mode = static_cast<Mode>(-1)}, "mode -1");
    expect({{good}, 1}, {.search_steps = -1}, "search_steps is -1");
    expect({{good}, 1}, {.unit_imbalance = -0.5}, "unit_imbalance is -0.5");
    expect({{good}, 1}, {.unit_imbalance = std::numeric_limits<double>::infinity()},
           "unit_imbalance is inf");
    expect({{good}, 1}, {.work = static_cast<Work>(2)}, "work 2");
    expect({{good}, 1}, {.costs = {.bytes_per_second = 0}}, "bytes_per_second is 0");
    expect({{good}, 1}, {.costs = {.seconds_per_collective = -1}}, "seconds_per_collective is -1");
    expect({{good}, 1}, {.costs = {.seconds_per_unequal = std::nan("")}},
           "seconds_per_unequal is nan");

    const Model twins{{good, {"twins", VESCOMM_BF16, {{"a", {2}}, {"a", {2}}}}}, 1};
    const ModelAnswer answer = plan(twins);
    EXPECT_NE(make_layout(twins, answer, 0), nullptr);
    EXPECT_THROW(make_layout(twins, answer, 1), LayoutError);
    EXPECT_THROW(make_layout(twins, answer, 2), LayoutError);
    const ModelAnswer none = plan(twins, {.shard_limit = 1});
    EXPECT_FALSE(none.feasible);
    EXPECT_NE(none.explanation.find("unit \"good\": there is no layout"), std::string::npos);
    EXPECT_THROW(make_layout(twins, none, 0), LayoutError);
}

}  // namespace
}  // namespace vescomm::planner
