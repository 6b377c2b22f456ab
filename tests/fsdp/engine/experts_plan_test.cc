// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Plans of models with units of experts.
#include <gtest/gtest.h>

#include <algorithm>

#include "fsdp/error.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {
namespace {

// A model of alternating dense units and units of experts.
Spec mixture_of(int units, int expert_ranks, const vescomm_fsdp_spec_options_t &options) {
    vescomm_fsdp_spec_options_t chosen = options;
    chosen.expert_ranks = expert_ranks;
    Spec spec(chosen);
    for (int unit = 0; unit < units; ++unit) {
        spec.add_unit("unit." + std::to_string(unit), unit % 2 == 0 ? 0 : VESCOMM_FSDP_EXPERTS);
        const std::int64_t shape[] = {12, 3 + unit, 5};
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        parameter.name = "weight";
        parameter.shape = shape;
        parameter.dimensions = 3;
        spec.add_parameter(static_cast<std::size_t>(unit), parameter);
    }
    spec.complete();
    return spec;
}

TEST(ModelPlan, RanksWithTheSameExpertsShardThem) {
    for (int ranks = 1; ranks <= 24; ++ranks)
        for (const int expert_ranks : {1, 2, 3, 4, 6, 12}) {
            const Spec spec = mixture_of(4, expert_ranks, vescomm_fsdp_spec_options_init());
            if (ranks % expert_ranks != 0) {
                EXPECT_THROW(plan_model(spec, ranks), Failure);
                continue;
            }
            const ModelPlan plan = plan_model(spec, ranks);
            std::vector<std::vector<int>> owner;  // by parameter and element
            for (std::size_t id = 0; id < 4; ++id) owner.emplace_back(12 * (3 + id) * 5, -1);
            for (int rank = 0; rank < ranks; ++rank)
                for (const Bucket &bucket : plan.buckets)
                    for (const auto &piece : bucket.pieces(rank))
                        for (std::int64_t i = piece.first; i < piece.first + piece.elements; ++i) {
                            int &one = owner[piece.parameter][static_cast<std::size_t>(i)];
                            EXPECT_EQ(one, -1);
                            one = rank;
                        }
            for (std::size_t id = 0; id < 4; ++id)
                for (std::size_t i = 0; i < owner[id].size(); ++i) {
                    ASSERT_GE(owner[id][i], 0);
                    if (id % 2 == 0) continue;
                    const auto expert = static_cast<int>(i / ((3 + id) * 5));
                    EXPECT_EQ(owner[id][i] % expert_ranks, expert / (12 / expert_ranks));
                }
        }
}

// The memory of a slot belongs to the ranks that share the units in it.
TEST(ModelPlan, ExpertsHaveSlotsOfTheirOwn) {
    for (const int slots : {1, 2, 3, 7})
        for (const bool keep : {false, true}) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.slots = options.gradient_slots = slots;
            options.keep_gathered = options.keep_gradients = keep ? 1 : 0;
            options.large_unit_bytes = 800;
            const ModelPlan plan = plan_model(mixture_of(7, 2, options), 4);
            const auto expect_kinds = [&](const std::vector<SlotRange> &ranges, std::size_t all,
                                          const auto &kind_of) {
                std::vector<bool> used(all, false);
                for (std::size_t unit = 0; unit < 7; ++unit) {
                    EXPECT_GT(ranges[unit].count(), 0);
                    for (int slot = ranges[unit].begin; slot < ranges[unit].end; ++slot) {
                        ASSERT_LT(static_cast<std::size_t>(slot), all);
                        used[static_cast<std::size_t>(slot)] = true;
                        EXPECT_EQ(kind_of(static_cast<std::size_t>(slot)),
                                  unit % 2 == 0 ? UnitKind::dense : UnitKind::experts);
                    }
                    if (unit % 2 != 0) {
                        EXPECT_FALSE(plan.large[unit]);
                        EXPECT_EQ(ranges[unit].count(), keep || slots >= 3 ? 1 : slots);
                    }
                }
                EXPECT_EQ(std::ranges::count(used, true), static_cast<std::ptrdiff_t>(all));
            };
            expect_kinds(plan.slot_ranges, plan.slots.size(),
                         [&](std::size_t slot) { return plan.kind_of_slot(slot); });
            expect_kinds(plan.gradient_slot_ranges, plan.gradient_slots.size(),
                         [&](std::size_t slot) { return plan.kind_of_gradient_slot(slot); });
        }
}

// Six units, dense and of experts in turn. A bit of `quantised` for each: it travels in 8 bits.
Spec in_eight_bits(unsigned quantised, const vescomm_fsdp_spec_options_t &options) {
    vescomm_fsdp_spec_options_t chosen = options;
    chosen.expert_ranks = 2;
    Spec spec(chosen);
    for (std::size_t unit = 0; unit < 6; ++unit) {
        spec.add_unit("unit." + std::to_string(unit), unit % 2 == 0 ? 0 : VESCOMM_FSDP_EXPERTS);
        const std::int64_t shape[] = {12, static_cast<std::int64_t>(10 * (unit + 1)), 5};
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        parameter.name = "weight";
        parameter.shape = shape;
        parameter.dimensions = 3;
        if ((quantised >> unit & 1) != 0) parameter.gather_type = VESCOMM_I8;
        spec.add_parameter(unit, parameter);
    }
    spec.complete();
    return spec;
}

TEST(ModelPlan, OnlyUnitsThatTravelInEightBitsHaveCodeSlots) {
    for (unsigned quantised = 0; quantised < 64; ++quantised)
        for (const std::int64_t large : {0, 10000})
            for (const int slots : {1, 2, 4}) {
                vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
                options.slots = slots;
                options.large_unit_bytes = large;
                const ModelPlan plan = plan_model(in_eight_bits(quantised, options), 4);
                bool shared = false, behind = false, experts = false;  // a unit has codes
                for (std::size_t unit = 0; unit < 6; ++unit) {
                    if (plan.quantised_bytes_of(unit) == 0) continue;
                    const SlotRange &range = plan.slot_ranges[unit];
                    if (plan.kinds[unit] == UnitKind::experts) experts = true;
                    else if (range.begin < static_cast<int>(plan.other_slots)) shared = true;
                    else behind = true;
                    for (int slot = range.begin; slot < range.end; ++slot) {
                        const auto code = static_cast<std::size_t>(plan.code_slot_for(slot));
                        ASSERT_LT(code, plan.code_slots.size());
                        EXPECT_EQ(plan.kind_of_code_slot(code), plan.kinds[unit]);
                        EXPECT_GE(plan.code_slots[code],
                                  plan.code_counter_bytes + plan.quantised_bytes_of(unit) / 4);
                    }
                }
                EXPECT_EQ(plan.shared_code_slots > 0, shared);
                EXPECT_EQ(plan.dense_code_slots > plan.shared_code_slots, behind);
                EXPECT_EQ(plan.code_slots.size() > plan.dense_code_slots, experts);
            }
}

TEST(ModelPlan, SumsInEightBitsHaveSlotsOfTheirKind) {
    for (const int slots : {1, 2, 4}) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.gradient_slots = slots;
        options.reduce_type = VESCOMM_I8;
        const ModelPlan plan = plan_model(in_eight_bits(0, options), 4);
        std::vector<bool> used(plan.sum_slots, false);
        for (std::size_t slot = 0; slot < plan.gradient_slots.size(); ++slot) {
            const int sums = plan.sum_slot_for(static_cast<int>(slot));
            ASSERT_GE(sums, 0);
            ASSERT_LT(static_cast<std::size_t>(sums), used.size());
            used[static_cast<std::size_t>(sums)] = true;
            EXPECT_EQ(plan.kind_of_sum_slot(static_cast<std::size_t>(sums)),
                      plan.kind_of_gradient_slot(slot));
        }
        EXPECT_EQ(std::ranges::count(used, false), 0);
        EXPECT_LT(plan.sent_code_bytes(UnitKind::experts), plan.sent_code_bytes(UnitKind::dense));
    }
}

}  // namespace
}  // namespace vescomm::fsdp
