// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "vescomm/planner.h"

namespace {

class PlannerApi : public testing::Test {
protected:
    void SetUp() override {
        tensors[0].name = "w";
        tensors[0].dimensions = 2;
        tensors[0].shape = matrix;
        tensors[0].block_rows = 32;
        tensors[1].name = "b";
        tensors[1].dimensions = 1;
        tensors[1].shape = vector;
    }

    void expect_refused(vescomm_status_t status, const char *part) {
        EXPECT_EQ(status, VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(vescomm_plan_explain()).find(part), std::string::npos)
            << vescomm_plan_explain();
    }

    const int64_t matrix[2] = {256, 64};
    const int64_t vector[1] = {64};
    vescomm_planner_tensor_t tensors[2] = {vescomm_planner_tensor_init(),
                                           vescomm_planner_tensor_init()};
    vescomm_layout_t *layout = nullptr;
};

TEST_F(PlannerApi, ReturnsALayoutAndItsFigures) {
    vescomm_planner_figures_t figures = vescomm_planner_figures_init();
    ASSERT_EQ(vescomm_plan(tensors, 2, 4, nullptr, &layout, &figures), VESCOMM_OK)
        << vescomm_plan_explain();
    ASSERT_NE(layout, nullptr);
    EXPECT_EQ(figures.elements, 256 * 64 + 64);
    EXPECT_EQ(figures.padding, 0);
    EXPECT_EQ(figures.largest_shard, 64 * 64 + 64);
    EXPECT_EQ(figures.optimal, 1);
    EXPECT_GE(figures.lower_bound_over_share, 1);
    EXPECT_LE(figures.lower_bound_over_share, figures.largest_over_share);
    EXPECT_STREQ(figures.order, "default");
    EXPECT_NE(std::string(vescomm_plan_explain()).find("ragged shards for 4 ranks"),
              std::string::npos);
    EXPECT_EQ(vescomm_layout_free(layout), VESCOMM_OK);
    EXPECT_EQ(vescomm_plan(tensors, 2, 4, nullptr, &layout, nullptr), VESCOMM_OK);
    EXPECT_EQ(vescomm_layout_free(layout), VESCOMM_OK);
    EXPECT_EQ(vescomm_plan(nullptr, 0, 4, nullptr, &layout, nullptr), VESCOMM_OK);
    EXPECT_EQ(vescomm_layout_free(layout), VESCOMM_OK);
}

TEST_F(PlannerApi, CutsLongNamesBetweenCharacters) {
    std::string shown = "x", name;
    for (int i = 0; i < 59; ++i) shown += "é";
    name = shown + "éé";  // the 120th byte is the second one of an é
    tensors[0].name = name.c_str();
    tensors[0].batch_dimensions = 9;
    expect_refused(vescomm_plan(tensors, 2, 4, nullptr, &layout, nullptr),
                   ("\"" + shown + "...\"").c_str());
}

TEST_F(PlannerApi, ReturnsNoLayoutAsAnAnswer) {
    vescomm_planner_options_t options = vescomm_planner_options_init();
    options.mode = VESCOMM_PLANNER_UNIFORM;
    options.shard_limit = 1000;
    vescomm_planner_figures_t figures = vescomm_planner_figures_init();
    layout = reinterpret_cast<vescomm_layout_t *>(this);
    ASSERT_EQ(vescomm_plan(tensors, 2, 4, &options, &layout, &figures), VESCOMM_OK);
    EXPECT_EQ(layout, nullptr);
    EXPECT_GE(figures.lower_bound, 2048);
    EXPECT_EQ(figures.order, nullptr);
    EXPECT_NE(std::string(vescomm_plan_explain()).find("there is no layout"), std::string::npos);
}

TEST_F(PlannerApi, RefusesWrongArgumentsAndSetsNoOutput) {
    auto *const untouched = reinterpret_cast<vescomm_layout_t *>(this);
    layout = untouched;
    vescomm_planner_figures_t figures = vescomm_planner_figures_init();
    vescomm_planner_options_t options = vescomm_planner_options_init();
    expect_refused(vescomm_plan(tensors, 2, 4, nullptr, nullptr, &figures), "layout is NULL");
    expect_refused(vescomm_plan(nullptr, 2, 4, nullptr, &layout, &figures), "tensors is NULL");
    expect_refused(vescomm_plan(tensors, 2, 0, nullptr, &layout, &figures), "0 ranks");
    expect_refused(vescomm_plan(tensors, 2, 10'000'001, nullptr, &layout, &figures),
                   "10000001 ranks is impossible; give 1 to 10000000");
    options.mode = 5;
    expect_refused(vescomm_plan(tensors, 2, 4, &options, &layout, &figures), "mode 5");
    options = vescomm_planner_options_init();
    options.struct_size = 0;
    expect_refused(vescomm_plan(tensors, 2, 4, &options, &layout, &figures),
                   "struct_size of options is 0");
    figures.struct_size = 5000;
    expect_refused(vescomm_plan(tensors, 2, 4, nullptr, &layout, &figures),
                   "struct_size of figures is 5000");
    figures = vescomm_planner_figures_init();
    tensors[1].name = "w";
    expect_refused(vescomm_plan(tensors, 2, 4, nullptr, &layout, &figures), "both named \"w\"");
    tensors[1].name = nullptr;
    expect_refused(vescomm_plan(tensors, 2, 4, nullptr, &layout, &figures),
                   "the name of tensor 1 is NULL");
    tensors[1].name = "b";
    tensors[1].reserved = 1;
    expect_refused(vescomm_plan(tensors, 2, 4, nullptr, &layout, &figures), "reserved of tensor 1");
    EXPECT_EQ(layout, untouched);
    EXPECT_EQ(figures.elements, 0);
}

TEST_F(PlannerApi, ServesCallersWithAShorterFiguresStruct) {
    vescomm_planner_figures_t figures;
    std::memset(&figures, 0xee, sizeof(figures));
    figures.struct_size = offsetof(vescomm_planner_figures_t, lower_bound);
    ASSERT_EQ(vescomm_plan(tensors, 2, 4, nullptr, &layout, &figures), VESCOMM_OK);
    EXPECT_EQ(figures.largest_shard, 64 * 64 + 64);
    EXPECT_EQ(static_cast<uint64_t>(figures.lower_bound), 0xeeeeeeeeeeeeeeeeu);
    EXPECT_EQ(vescomm_layout_free(layout), VESCOMM_OK);
}

// The ABI: programs built against 0.1 use these offsets.
static_assert(sizeof(vescomm_planner_tensor_t) == 48 &&
              offsetof(vescomm_planner_tensor_t, block_rows) == 24 &&
              offsetof(vescomm_planner_tensor_t, batch_dimensions) == 32 &&
              offsetof(vescomm_planner_tensor_t, alignment) == 40);
static_assert(sizeof(vescomm_planner_options_t) == 88 &&
              offsetof(vescomm_planner_options_t, start_alignment) == 8 &&
              offsetof(vescomm_planner_options_t, shard_limit) == 24 &&
              offsetof(vescomm_planner_options_t, weights) == 32 &&
              offsetof(vescomm_planner_options_t, unit_imbalance) == 48 &&
              offsetof(vescomm_planner_options_t, work) == 56 &&
              offsetof(vescomm_planner_options_t, seconds_per_unequal) == 80);
static_assert(sizeof(vescomm_planner_figures_t) == 80 &&
              offsetof(vescomm_planner_figures_t, elements) == 8 &&
              offsetof(vescomm_planner_figures_t, mean_shard) == 40 &&
              offsetof(vescomm_planner_figures_t, order) == 48 &&
              offsetof(vescomm_planner_figures_t, largest_over_share) == 56 &&
              offsetof(vescomm_planner_figures_t, steps) == 64 &&
              offsetof(vescomm_planner_figures_t, lower_bound_over_share) == 72);

}  // namespace
