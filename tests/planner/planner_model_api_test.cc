// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

#include "vescomm/planner.h"

namespace {

class PlannerModelApi : public testing::Test {
protected:
    void SetUp() override {
        tensors[0].name = "w";
        tensors[0].dimensions = 2;
        tensors[0].shape = matrix;
        tensors[0].block_rows = 32;
        tensors[1].name = "b";
        tensors[1].dimensions = 1;
        tensors[1].shape = vector;
        for (vescomm_planner_unit_t &unit : units) {
            unit.name = "layer";
            unit.tensors = tensors;
            unit.count = 2;
        }
        units[2].count = 1;
        units[2].type = VESCOMM_F32;
    }

    void TearDown() override { EXPECT_EQ(vescomm_plan_free(plan), VESCOMM_OK); }

    void expect_refused(vescomm_status_t status, const char *part) {
        EXPECT_EQ(status, VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(vescomm_plan_explain()).find(part), std::string::npos)
            << vescomm_plan_explain();
    }

    const int64_t matrix[2] = {320, 64};
    const int64_t vector[1] = {64};
    vescomm_planner_tensor_t tensors[2] = {vescomm_planner_tensor_init(),
                                           vescomm_planner_tensor_init()};
    vescomm_planner_unit_t units[3] = {vescomm_planner_unit_init(), vescomm_planner_unit_init(),
                                       vescomm_planner_unit_init()};
    vescomm_planner_options_t options = vescomm_planner_options_init();
    vescomm_plan_t *plan = nullptr;
};

TEST_F(PlannerModelApi, PlansUnitsTogetherAndReportsFigures) {
    options.mode = VESCOMM_PLANNER_BALANCED;
    ASSERT_EQ(vescomm_plan_create(units, 3, 4, &options, &plan), VESCOMM_OK)
        << vescomm_plan_explain();
    EXPECT_NE(std::string(vescomm_plan_explain()).find("balanced shards for 4 ranks and 3 units"),
              std::string::npos)
        << vescomm_plan_explain();
    size_t count = 0;
    ASSERT_EQ(vescomm_plan_get_units(plan, &count), VESCOMM_OK);
    ASSERT_EQ(count, 3u);
    vescomm_planner_totals_t totals = vescomm_planner_totals_init();
    ASSERT_EQ(vescomm_plan_get_totals(plan, &totals), VESCOMM_OK);
    EXPECT_EQ(totals.feasible, 1);
    EXPECT_EQ(totals.mode, VESCOMM_PLANNER_BALANCED);
    EXPECT_EQ(totals.bytes, 2 * 2 * (320 * 64 + 64) + 4 * 320 * 64);
    EXPECT_GT(totals.wire_bytes_per_step, 0);
    EXPECT_GT(totals.seconds_per_step, 0);
    int64_t loads[4] = {0, 0, 0, 0};
    for (size_t unit = 0; unit < count; ++unit) {
        vescomm_planner_figures_t figures = vescomm_planner_figures_init();
        ASSERT_EQ(vescomm_plan_get_figures(plan, unit, &figures), VESCOMM_OK);
        vescomm_layout_t *layout = nullptr;
        ASSERT_EQ(vescomm_plan_create_layout(plan, unit, &layout), VESCOMM_OK);
        vescomm_layout_info_t info = vescomm_layout_info_init();
        ASSERT_EQ(vescomm_layout_get_info(layout, &info), VESCOMM_OK);
        EXPECT_EQ(info.elements, figures.elements);
        EXPECT_EQ(info.largest, figures.largest_shard);
        for (int32_t rank = 0; rank < 4; ++rank) {
            int64_t begin = 0;
            int64_t end = 0;
            ASSERT_EQ(vescomm_layout_get_shard(layout, rank, &begin, &end), VESCOMM_OK);
            loads[rank] += (end - begin) * (unit == 2 ? 4 : 2);
        }
        EXPECT_EQ(vescomm_layout_free(layout), VESCOMM_OK);
    }
    int64_t largest = 0;
    for (const int64_t load : loads) largest = load > largest ? load : largest;
    EXPECT_EQ(totals.largest_rank_bytes, largest);
    EXPECT_GE(totals.largest_rank_bytes, totals.lower_bound_bytes);
}

TEST_F(PlannerModelApi, TakesEveryOption) {
    const int64_t weights[4] = {3, 1, 0, 1};
    options.weights = weights;
    options.search_steps = 1000;
    ASSERT_EQ(vescomm_plan_create(units, 3, 4, &options, &plan), VESCOMM_OK)
        << vescomm_plan_explain();
    vescomm_layout_t *layout = nullptr;
    ASSERT_EQ(vescomm_plan_create_layout(plan, 0, &layout), VESCOMM_OK);
    int64_t begin = -1;
    int64_t end = 0;
    ASSERT_EQ(vescomm_layout_get_shard(layout, 2, &begin, &end), VESCOMM_OK);
    EXPECT_EQ(begin, end);
    EXPECT_EQ(vescomm_layout_free(layout), VESCOMM_OK);
    EXPECT_EQ(vescomm_plan_free(plan), VESCOMM_OK);

    // One byte costs a second, so that the effect of each option appears in the totals.
    options = vescomm_planner_options_init();
    options.bytes_per_second = 1;
    options.seconds_per_collective = -1;
    options.seconds_per_unequal = -1;
    ASSERT_EQ(vescomm_plan_create(units, 1, 4, &options, &plan), VESCOMM_OK);
    vescomm_planner_totals_t totals = vescomm_planner_totals_init();
    ASSERT_EQ(vescomm_plan_get_totals(plan, &totals), VESCOMM_OK);
    EXPECT_EQ(totals.seconds_per_step, totals.wire_bytes_per_step);
    EXPECT_EQ(vescomm_plan_free(plan), VESCOMM_OK);

    tensors[1].alignment = 4096;
    options.mode = VESCOMM_PLANNER_OWNER;
    options.work = VESCOMM_PLANNER_WORK_ELEMENTS;
    ASSERT_EQ(vescomm_plan_create(units, 1, 2, &options, &plan), VESCOMM_OK);
    vescomm_planner_figures_t figures = vescomm_planner_figures_init();
    ASSERT_EQ(vescomm_plan_get_figures(plan, 0, &figures), VESCOMM_OK);
    EXPECT_STREQ(figures.order, "owner");
    ASSERT_EQ(vescomm_plan_create_layout(plan, 0, &layout), VESCOMM_OK);
    EXPECT_EQ(vescomm_layout_free(layout), VESCOMM_OK);
}

TEST_F(PlannerModelApi, ReturnsNoLayoutAsAnAnswer) {
    options.shard_limit = 100;
    ASSERT_EQ(vescomm_plan_create(units, 3, 4, &options, &plan), VESCOMM_OK);
    EXPECT_NE(std::string(vescomm_plan_explain()).find("unit \"layer\": there is no layout"),
              std::string::npos)
        << vescomm_plan_explain();
    vescomm_planner_totals_t totals = vescomm_planner_totals_init();
    totals.bytes = 7;
    ASSERT_EQ(vescomm_plan_get_totals(plan, &totals), VESCOMM_OK);
    EXPECT_EQ(totals.feasible, 0);
    EXPECT_EQ(totals.bytes, 0);
    vescomm_layout_t *layout = reinterpret_cast<vescomm_layout_t *>(this);
    ASSERT_EQ(vescomm_plan_create_layout(plan, 1, &layout), VESCOMM_OK);
    EXPECT_EQ(layout, nullptr);
    vescomm_planner_figures_t figures = vescomm_planner_figures_init();
    figures.elements = 7;
    ASSERT_EQ(vescomm_plan_get_figures(plan, 1, &figures), VESCOMM_OK);
    EXPECT_EQ(figures.elements, 0);
}

TEST_F(PlannerModelApi, RefusesWrongArgumentsAndSetsNoOutput) {
    auto *const untouched = reinterpret_cast<vescomm_plan_t *>(this);
    plan = untouched;
    expect_refused(vescomm_plan_create(units, 3, 4, nullptr, nullptr), "plan is NULL");
    expect_refused(vescomm_plan_create(nullptr, 3, 4, nullptr, &plan), "units is NULL");
    expect_refused(vescomm_plan_create(units, 3, 0, nullptr, &plan), "0 ranks");
    options.reserved = 1;
    expect_refused(vescomm_plan_create(units, 3, 4, &options, &plan), "reserved of options");
    options = vescomm_planner_options_init();
    options.mode = 5;
    expect_refused(vescomm_plan_create(units, 3, 4, &options, &plan), "mode 5");
    options = vescomm_planner_options_init();
    options.work = 2;
    expect_refused(vescomm_plan_create(units, 3, 4, &options, &plan), "work 2");
    options = vescomm_planner_options_init();
    options.search_steps = -1;
    expect_refused(vescomm_plan_create(units, 3, 4, &options, &plan), "search_steps is -1");
    options = vescomm_planner_options_init();
    options.unit_imbalance = NAN;
    expect_refused(vescomm_plan_create(units, 3, 4, &options, &plan), "unit_imbalance is nan");
    options = vescomm_planner_options_init();
    options.bytes_per_second = -1;
    expect_refused(vescomm_plan_create(units, 3, 4, &options, &plan), "bytes_per_second is -1");
    options = vescomm_planner_options_init();
    const int64_t weights[4] = {0, 0, 0, 0};
    options.weights = weights;
    expect_refused(vescomm_plan_create(units, 3, 4, &options, &plan), "all weights");
    units[1].type = 99;
    expect_refused(vescomm_plan_create(units, 3, 4, nullptr, &plan), "unit \"layer\": type 99");
    units[1].type = VESCOMM_BF16;
    units[1].name = nullptr;
    expect_refused(vescomm_plan_create(units, 3, 4, nullptr, &plan), "the name of unit 1 is NULL");
    units[1].name = "layer";
    units[1].struct_size = 0;
    expect_refused(vescomm_plan_create(units, 3, 4, nullptr, &plan), "struct_size of unit 1 is 0");
    units[1] = units[0];
    units[1].tensors = nullptr;
    expect_refused(vescomm_plan_create(units, 3, 4, nullptr, &plan), "tensors is NULL");
    units[1] = units[0];
    tensors[1].alignment = -1;
    expect_refused(vescomm_plan_create(units, 3, 4, nullptr, &plan), "has an alignment of -1");
    tensors[1].alignment = 0;
    EXPECT_EQ(plan, untouched);

    ASSERT_EQ(vescomm_plan_create(units, 3, 4, nullptr, &plan), VESCOMM_OK);
    size_t count = 0;
    vescomm_layout_t *layout = nullptr;
    vescomm_planner_figures_t figures = vescomm_planner_figures_init();
    vescomm_planner_totals_t totals = vescomm_planner_totals_init();
    expect_refused(vescomm_plan_get_units(nullptr, &count), "plan is NULL");
    expect_refused(vescomm_plan_get_units(plan, nullptr), "count is NULL");
    expect_refused(vescomm_plan_create_layout(nullptr, 0, &layout), "plan is NULL");
    expect_refused(vescomm_plan_create_layout(plan, 0, nullptr), "layout is NULL");
    expect_refused(vescomm_plan_create_layout(plan, 3, &layout),
                   "there is no unit 3 in a plan of 3");
    expect_refused(vescomm_plan_get_figures(plan, 3, &figures), "there is no unit 3");
    expect_refused(vescomm_plan_get_figures(plan, 0, nullptr), "figures is NULL");
    expect_refused(vescomm_plan_get_totals(plan, nullptr), "totals is NULL");
    totals.struct_size = 3;
    expect_refused(vescomm_plan_get_totals(plan, &totals), "struct_size of totals is 3");
}

TEST_F(PlannerModelApi, ServesCallersWithOlderStructs) {
    // An older header without alignment, weights and all later members.
    struct {
        unsigned char bytes[offsetof(vescomm_planner_tensor_t, alignment)];
    } old[2];
    for (int i = 0; i < 2; ++i) {
        tensors[i].struct_size = sizeof(old[i]);
        std::memcpy(&old[i], &tensors[i], sizeof(old[i]));
    }
    units[0].tensors = reinterpret_cast<const vescomm_planner_tensor_t *>(old);
    options.struct_size = offsetof(vescomm_planner_options_t, weights);
    options.weights = reinterpret_cast<const int64_t *>(this);  // beyond the struct
    ASSERT_EQ(vescomm_plan_create(units, 1, 4, &options, &plan), VESCOMM_OK)
        << vescomm_plan_explain();
    vescomm_planner_totals_t totals;
    std::memset(&totals, 0xee, sizeof(totals));
    totals.struct_size = offsetof(vescomm_planner_totals_t, padding_bytes);
    ASSERT_EQ(vescomm_plan_get_totals(plan, &totals), VESCOMM_OK);
    EXPECT_EQ(totals.bytes, 2 * (320 * 64 + 64));
    EXPECT_EQ(static_cast<uint64_t>(totals.padding_bytes), 0xeeeeeeeeeeeeeeeeu);
}

TEST_F(PlannerModelApi, PlansEmptyModels) {
    ASSERT_EQ(vescomm_plan_create(nullptr, 0, 4, nullptr, &plan), VESCOMM_OK);
    vescomm_planner_totals_t totals = vescomm_planner_totals_init();
    ASSERT_EQ(vescomm_plan_get_totals(plan, &totals), VESCOMM_OK);
    EXPECT_EQ(totals.feasible, 1);
    EXPECT_EQ(totals.bytes, 0);
    EXPECT_EQ(vescomm_plan_free(nullptr), VESCOMM_OK);
}

// The ABI: programs built against 0.1 use these offsets.
static_assert(sizeof(vescomm_planner_unit_t) == 32 && offsetof(vescomm_planner_unit_t, type) == 4 &&
              offsetof(vescomm_planner_unit_t, name) == 8 &&
              offsetof(vescomm_planner_unit_t, count) == 24);
static_assert(sizeof(vescomm_planner_totals_t) == 96 &&
              offsetof(vescomm_planner_totals_t, feasible) == 4 &&
              offsetof(vescomm_planner_totals_t, bytes) == 16 &&
              offsetof(vescomm_planner_totals_t, mean_rank_bytes) == 48 &&
              offsetof(vescomm_planner_totals_t, seconds_per_step) == 88);

}  // namespace
